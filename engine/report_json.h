// Reports of a generation in JSON, for the command line and HTTP.
#ifndef TANDEM_ENGINE_REPORT_JSON_H_
#define TANDEM_ENGINE_REPORT_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "tandem/completion.h"
#include "tandem/json_value.h"

namespace tandem {

// The objects of docs/command_line.md.
JsonValue TimingsJson(const Completion& completion);
// vLLM's `kv_transfer_params` for the decode request. The list of block ids is empty, because pages
// are found by the hash of their text.
JsonValue KvTransferJson(const KvTransferParams& params);
JsonValue SpeculationJson(const Completion& completion, const std::string& drafter);
// A list of `text`, `logprob` and `normalized_logprob`; null for the logarithm of zero.
JsonValue ChoiceLogprobsJson(absl::Span<const ChoiceLogprob> choices);
// vLLM's `metrics` of a request with one sequence.
JsonValue MetricsJson(const Completion& completion);
JsonValue CompletionJson(const Completion& completion, const std::string& drafter);

// Returns the number of draft positions that at least one round verified.
int NumDraftPlaces(const RoundStats& stats);

// Combines sequences that were submitted together into one report. Counts are added and ids are
// concatenated. The decode span begins when the first of them has read its prompt and ends with the
// last sequence; `draft` and `verify` are the maximum over the sequences, which share rounds. The
// finish reason is the first sequence's. There is neither text nor log-probabilities.
// REQUIRES: `completions` is not empty.
Completion JointCompletion(absl::Span<const Completion> completions);
// Adds one completion to such a report, or to a first completion.
void Join(const Completion& completion, Completion* joint);

}  // namespace tandem

#endif  // TANDEM_ENGINE_REPORT_JSON_H_
