#include "tandem/completion.h"

#include "base/named_values.h"

namespace tandem {
namespace {

constexpr NamedValues<FinishReason, 4> kFinishReasons = {{{FinishReason::kStop, "stop"},
                                                          {FinishReason::kLength, "length"},
                                                          {FinishReason::kCancelled, "cancelled"},
                                                          {FinishReason::kDeadline, "deadline"}}};

double Rate(int num_tokens, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  return num_tokens <= 0 || seconds <= 0 ? 0.0 : num_tokens / seconds;
}

}  // namespace

std::string_view NameOf(FinishReason reason) { return NameIn(kFinishReasons, reason); }

absl::Duration Timings::TimePerOutputToken(int num_tokens, int first_tokens) const {
  if (num_tokens <= first_tokens) return absl::ZeroDuration();
  return (end_to_end - time_to_first_token) / (num_tokens - first_tokens);
}

double Completion::PromptTokensPerSecond() const {
  return Rate(num_read_tokens(), timings.all_prompts);
}

double Completion::DecodeTokensPerSecond() const {
  return Rate(num_decoded_tokens(), timings.decode());
}

double Completion::TokensPerSecond() const {
  return Rate(static_cast<int>(token_ids.size()), timings.end_to_end - timings.queue);
}

}  // namespace tandem
