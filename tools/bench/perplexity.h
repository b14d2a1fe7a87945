// Measures how well a model predicts a text, for example to measure the loss by quantisation.
#ifndef TANDEM_TOOLS_BENCH_PERPLEXITY_H_
#define TANDEM_TOOLS_BENCH_PERPLEXITY_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/types.h"

namespace tandem {

// Tokens are read in windows of `window` tokens that begin `stride` tokens apart. Each token except
// the first of the text is predicted once: in the first window that contains it, from the tokens
// before it in that window. So all tokens after the first window have at least window - stride
// tokens of context. If the stride equals the window, windows do not overlap, and each predicts all
// but its first token.
struct PerplexityOptions {
  int window = 0;          // in [2, the model's context]
  int stride = 0;          // in [1, window]
  int chunk_tokens = 256;  // read per pass
};

struct Perplexity {
  int64_t tokens = 0;  // predicted
  double nats = 0.0;   // the sum of their negative log-probabilities
  int64_t end = 0;     // the position after the last of them

  double perplexity() const;
  // Bits per byte, if the predicted tokens have this many bytes.
  double BitsPerByte(int64_t bytes) const;
};

// Measures the perplexity of `tokens`. `cache` is the model's and has room for a window. `on_chunk`
// is called after each chunk of a window, with the result until then; its error ends the
// measurement. INVALID_ARGUMENT for fewer than two tokens; other errors are the model's.
absl::StatusOr<Perplexity> MeasurePerplexity(
    absl::Span<const TokenId> tokens, const PerplexityOptions& options, LanguageModel* model,
    PagedKvCache* cache, absl::FunctionRef<absl::Status(const Perplexity&)> on_chunk);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PERPLEXITY_H_
