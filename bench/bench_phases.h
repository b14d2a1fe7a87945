// Measures the two phases of a generation: the time to the first token against the prompt's length,
// and the time per output token against its position.
#ifndef TANDEM_BENCH_BENCH_PHASES_H_
#define TANDEM_BENCH_BENCH_PHASES_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bench/machine_limits.h"
#include "bench/pass_demand.h"
#include "tandem/engine.h"

namespace tandem {

struct PhaseBenchmarkOptions {
  std::vector<int> prompt_lengths;
  int tokens_per_position = 16;  // decoded after each prompt, beyond the first
  int repeat = 5;
  int chunk_tokens = 256;  // the engine's
};

// One point of a curve, and of the roofline.
struct PhasePoint {
  int tokens = 0;    // of the prompt; for decoding, read before the token, at the middle
  Demand demand;     // of the prompt, or of one token
  LimitedTime time;  // likewise

  double intensity() const { return demand.flops / demand.bytes; }  // operations per byte
  double flops_per_second() const { return demand.flops / (time.ms * 1e-3); }
  double bytes_per_second() const { return demand.bytes / (time.ms * 1e-3); }
};

struct PhaseBenchmark {
  std::vector<PhasePoint> prefill;
  std::vector<PhasePoint> decode;
};

// Plain decoding of random prompts, the lengths in turns. `engine` must have no prefix cache.
absl::StatusOr<PhaseBenchmark> RunPhaseBenchmark(const PhaseBenchmarkOptions& options,
                                                 const PassCounter& counter, Engine* engine,
                                                 MachineLimits* limits,
                                                 absl::FunctionRef<void()> on_generation);

}  // namespace tandem

#endif  // TANDEM_BENCH_BENCH_PHASES_H_
