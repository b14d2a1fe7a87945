#ifndef TANDEM_TOOLS_PLAIN_COMPARISON_H_
#define TANDEM_TOOLS_PLAIN_COMPARISON_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/engine.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem {

// Requests decoded plainly, beside speculative runs of the same.
struct PlainComparison {
  std::vector<Completion> plain;
  double plain_tokens_per_second = 0.0;  // medians over the runs, of all sequences together
  double speculative_tokens_per_second = 0.0;
  bool identical = true;
  double speedup() const { return speculative_tokens_per_second / plain_tokens_per_second; }
};

// Runs the requests several times each way, all at once; `speculative` is what became of them
// before. REQUIRES: there is one, and each has a seed or temperature 0.
absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> speculative);

// Adds to the object of speculative run `index` what it is compared with (docs/command_line.md).
void AddToJson(const PlainComparison& comparison, size_t index, const Completion& speculative,
               nlohmann::json* json);
// Two lines for a person.
std::string ToText(const PlainComparison& comparison);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PLAIN_COMPARISON_H_
