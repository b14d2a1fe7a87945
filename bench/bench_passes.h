// Measures whole passes of a model beside what this machine's memory and arithmetic allow.
#ifndef TANDEM_BENCH_BENCH_PASSES_H_
#define TANDEM_BENCH_BENCH_PASSES_H_

#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bench/machine_limits.h"
#include "bench/pass_demand.h"
#include "engine/runtime.h"

namespace tandem {

struct PassBenchmarkOptions {
  std::vector<int> rows;      // 1 is decoding, up to 16 verifying (logits of every row), more a
                              // prompt's pass (of the last)
  std::vector<int> contexts;  // tokens in the cache before the rows
  int repeat = 7;
  bool bf16_products = false;
};

struct PassResult {
  std::string_view what;  // "decode", "verify", "prefill"
  PassShape shape;
  Demand demand;
  LimitedTime time;

  double bytes_per_second() const { return demand.bytes / (time.ms * 1e-3); }
  double flops_per_second() const { return demand.flops / (time.ms * 1e-3); }
};

// All rows at all contexts, in turns; those that the model's context does not hold are left out.
absl::StatusOr<std::vector<PassResult>> RunPassBenchmark(const PassBenchmarkOptions& options,
                                                         Runtime* pair, MachineLimits* limits,
                                                         absl::FunctionRef<void()> on_repeat);

}  // namespace tandem

#endif  // TANDEM_BENCH_BENCH_PASSES_H_
