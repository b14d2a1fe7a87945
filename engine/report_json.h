// The report of a generation in JSON, for the command line and HTTP.
#ifndef TANDEM_ENGINE_REPORT_JSON_H_
#define TANDEM_ENGINE_REPORT_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"

namespace tandem {

// The objects of docs/command_line.md.
JsonValue TimingsJson(const Completion& completion);
// vLLM's `kv_transfer_params`, for the decode request. The list of block ids is empty: pages are
// found by the hash of their text.
JsonValue KvTransferJson(const KvTransferParams& params);
JsonValue SpeculationJson(const Completion& completion, const std::string& drafter);
JsonValue CompletionJson(const Completion& completion, const std::string& drafter);

// Draft places that some round verified.
int NumDraftPlaces(const RoundStats& stats);

// Sequences that were submitted together, as one: counts and ids are sums. The decode span begins
// where the first of them has read its prompt and ends with the last; `draft` and `verify` are the
// most that one of them saw of the rounds they shared. The ending is the first sequence's; there is
// neither text nor log-probabilities. REQUIRES: there is one.
Completion JointCompletion(absl::Span<const Completion> completions);
// Joins one more to such a completion, or to the first.
void Join(const Completion& completion, Completion* joint);

}  // namespace tandem

#endif  // TANDEM_ENGINE_REPORT_JSON_H_
