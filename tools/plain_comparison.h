#ifndef TANDEM_TOOLS_PLAIN_COMPARISON_H_
#define TANDEM_TOOLS_PLAIN_COMPARISON_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/machine_load.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
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
  int num_pairs = 0;
  bool identical = true;
  OtherLoad others;  // while these pairs ran
};

// One plain and one speculative run, one right after the other.
struct ComparedPair {
  PlainComparison::Run plain;
  PlainComparison::Run speculative;
  OtherLoad others;
  double Speedup() const { return speculative.TokensPerSecond() / plain.TokensPerSecond(); }
};
// Whether another pair should run after `pairs`: at least three do, and more, up to 30 seconds and
// nine undisturbed ones, until three are undisturbed and the speed-ups of all such pairs differ by
// at most a tenth.
bool NeedsAnotherPair(absl::Span<const ComparedPair> pairs, absl::Duration elapsed);
// The comparison over the undisturbed pairs, or over all if fewer than three were undisturbed.
// REQUIRES: `pairs` is not empty.
PlainComparison Summarise(absl::Span<const ComparedPair> pairs, absl::Span<const Completion> first);

// Runs `requests` plainly and with speculation. `first` holds the completions of an earlier
// speculative run of the same requests, which has warmed the engine up; all tokens are compared
// with them. Further runs of both kinds warm up what the engine learns (draft_length.md) and are
// not counted. REQUIRES: `requests` is not
// empty, and each request has a seed or temperature 0.
absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> first);

// Adds the figures of the comparison (docs/command_line.md) to `json`, the object of completion
// `index` of the median speculative run.
void AddToJson(const PlainComparison& comparison, size_t index, SortedJson* json);
// Formats the comparison as a few lines of text.
std::string ToText(const PlainComparison& comparison);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PLAIN_COMPARISON_H_
