#include "engine/completion.h"

#include "base/named_values.h"

namespace tandem {
namespace {

constexpr NamedValues<FinishReason, 4> kFinishReasons = {{{FinishReason::kStop, "stop"},
                                                          {FinishReason::kLength, "length"},
                                                          {FinishReason::kCancelled, "cancelled"},
                                                          {FinishReason::kDeadline, "deadline"}}};

}  // namespace

std::string_view NameOf(FinishReason reason) { return NameIn(kFinishReasons, reason); }

absl::Duration Timings::TimePerOutputToken(int num_tokens, int first_tokens) const {
  if (num_tokens <= first_tokens) return absl::ZeroDuration();
  return (end_to_end - time_to_first_token) / (num_tokens - first_tokens);
}

}  // namespace tandem
