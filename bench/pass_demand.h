// What a pass of a model cannot do without: bytes and operations, counted from its sizes.
#ifndef TANDEM_BENCH_PASS_DEMAND_H_
#define TANDEM_BENCH_PASS_DEMAND_H_

#include <cstdint>

#include "bench/machine_limits.h"
#include "checkpoint/model_config.h"
#include "kernels/matrix.h"

namespace tandem {

struct PassShape {
  int rows = 1;        // tokens read, of each sequence
  int context = 0;     // tokens before them, in the cache
  int logit_rows = 1;  // rows whose logits are computed, of each sequence
  int batch = 1;       // sequences
};

class PassCounter {
 public:
  // `bytes_read`: of matrices by one pass; `dtype`: theirs; `kv_bytes`: of a token in the cache.
  PassCounter(const ModelConfig& config, int64_t bytes_read, int64_t kv_bytes, DType dtype,
              bool bf16_products);

  // One pass: every matrix once, each cache once, two operations for each multiply-add of the
  // products and of attention. Attention computes little compared with the products, and is counted
  // with their input.
  Demand Of(const PassShape& pass) const;
  // A prompt read in chunks.
  Demand OfPrompt(int num_tokens, int chunk_tokens) const;

 private:
  double bytes_read_;
  double kv_bytes_;
  double body_elements_ = 0.0;  // of matrices but the head
  double head_elements_ = 0.0;
  double attended_elements_ = 0.0;  // multiply-adds for each token that a row looks at
  Place place_;
  DotInput input_;
};

}  // namespace tandem

#endif  // TANDEM_BENCH_PASS_DEMAND_H_
