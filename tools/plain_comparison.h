#ifndef TANDEM_TOOLS_PLAIN_COMPARISON_H_
#define TANDEM_TOOLS_PLAIN_COMPARISON_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "nlohmann/json_fwd.hpp"
#include "tandem/engine.h"
#include "tools/table.h"

namespace tandem {

// Runs of the same requests, plain and speculative ones in turns.
struct PlainComparison {
  // All requests run once, all at once.
  struct Run {
    std::vector<Completion> completions;
    absl::Duration time;
    double TokensPerSecond() const;  // of all sequences together, prompts included
    double AcceptanceRate() const;
  };

  // The runs of median speed.
  Run plain;
  Run speculative;
  // Over all runs of a kind.
  Spread plain_tokens_per_second;
  Spread tokens_per_second;
  Spread acceptance_rate;
  Spread speedup;  // over the pairs of runs that followed each other
  bool identical = true;
  // The share of the processors' time that other programs took meanwhile, if it is known, and
  // whether that is so much that the figures are not to be trusted.
  std::optional<double> share_of_others;
  bool is_disturbed = false;
};

// `first` is what became of the requests before, with speculation: the engine is warm then. One
// plain run more is made and not counted. REQUIRES: there is a request, and each has a seed or
// temperature 0.
absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> first);

// Adds to the object of the median speculative run's completion `index` what it is compared with
// (docs/command_line.md).
void AddToJson(const PlainComparison& comparison, size_t index, nlohmann::json* json);
// A few lines for a person.
std::string ToText(const PlainComparison& comparison);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PLAIN_COMPARISON_H_
