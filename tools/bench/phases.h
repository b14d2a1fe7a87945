// Measures the two phases of plain decoding: reading a prompt (prefill), by its length, and writing
// tokens (decode), by their position.
#ifndef TANDEM_TOOLS_BENCH_PHASES_H_
#define TANDEM_TOOLS_BENCH_PHASES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"

namespace tandem {

struct PhaseOptions {
  std::vector<int> prompt_lengths = {16, 64, 128, 256, 512};
  int max_tokens = 16;  // decoded after each prompt, beyond the first
  int repeat = 5;
  int chunk_tokens = 256;  // of the engine
};

// One point of a curve, with its limits.
struct PhasePoint {
  int tokens = 0;  // tokens of the prompt; for decoding, before the middle one of the output tokens
  Demand demand;   // of the prompt, or of one output token
  MachineLimits::Series series = {};
};

struct PhaseCurves {
  std::vector<PhasePoint> prefill;
  std::vector<PhasePoint> decode;

  // The points that have samples, as rows of reports.
  std::vector<JsonValue> PrefillRows() const;
  std::vector<JsonValue> DecodeRows() const;
};

// Returns a request that decodes a random prompt plainly, `max_tokens` tokens at temperature 0.
Request RandomRequest(int prompt_length, int max_tokens, int vocab_size, uint64_t seed);

// Returns the counter for the passes of the target of an engine with these options.
absl::StatusOr<PassCounter> PassCounterOf(const EngineOptions& options, const ModelInfo& target);

// Decodes random prompts plainly, alternating between the lengths. After an error *curves has the
// samples until then. REQUIRES: `engine` does not have a prefix cache.
absl::Status MeasurePhases(const PhaseOptions& options, const PassCounter& counter, Engine* engine,
                           MachineLimits* limits, Measuring* measuring, PhaseCurves* curves);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PHASES_H_
