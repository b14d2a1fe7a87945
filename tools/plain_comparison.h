#ifndef TANDEM_TOOLS_PLAIN_COMPARISON_H_
#define TANDEM_TOOLS_PLAIN_COMPARISON_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/machine_load.h"
#include "nlohmann/json_fwd.hpp"
#include "tandem/engine.h"
#include "tools/table.h"

namespace tandem {

// Alternating plain and speculative runs of the same requests.
struct PlainComparison {
  // One run of all requests at the same time.
  struct Run {
    std::vector<Completion> completions;
    absl::Duration time;
    double TokensPerSecond() const;  // of all sequences together; the time includes the prompts
    double AcceptanceRate() const;
  };

  // The runs with the median speed.
  Run plain;
  Run speculative;
  // Over all runs of a kind.
  Spread plain_tokens_per_second;
  Spread tokens_per_second;
  Spread acceptance_rate;
  Spread speedup;  // over the pairs of consecutive runs
  bool identical = true;
  OtherLoad others;  // during the runs
};

// Runs `requests` plainly and with speculation. `first` holds the completions of an earlier
// speculative run of the same requests, which has warmed the engine up; all tokens are compared
// with them. An additional plain run warms up too and is not counted. REQUIRES: `requests` is not
// empty, and each request has a seed or temperature 0.
absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> first);

// Adds the figures of the comparison (docs/command_line.md) to `json`, the object of completion
// `index` of the median speculative run.
void AddToJson(const PlainComparison& comparison, size_t index, nlohmann::json* json);
// Formats the comparison as a few lines of text.
std::string ToText(const PlainComparison& comparison);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PLAIN_COMPARISON_H_
