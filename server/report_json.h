// What a generation says of itself in JSON, on the command line and over HTTP.
#ifndef TANDEM_SERVER_REPORT_JSON_H_
#define TANDEM_SERVER_REPORT_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "engine/engine.h"
#include "model/formats/json_value.h"

namespace tandem {

// The objects of docs/command_line.md.
JsonValue TimingsJson(const Completion& completion);
JsonValue SpeculationJson(const Completion& completion, const std::string& drafter);
JsonValue CompletionJson(const Completion& completion, const std::string& drafter);

double TokensPerSecond(const Completion& completion);
// Draft places that some round verified.
int NumDraftPlaces(const RoundStats& stats);

// Sequences that ran together as one: counts and ids added up, from the first token of any to the
// last of all, and of the rounds that they shared the most that one saw. Its ending is the first's;
// it has neither text nor log-probabilities. REQUIRES: there is one.
Completion JointCompletion(absl::Span<const Completion> completions);
// Joins one more to such a one, or to the first.
void Join(const Completion& completion, Completion* joint);

}  // namespace tandem

#endif  // TANDEM_SERVER_REPORT_JSON_H_
