#include "engine/session_times.h"

namespace tandem {

void SessionTimes::OnPlace(Instant now) {
  if (!placed_.has_value()) placed_ = now;
}

void SessionTimes::OnRound(absl::Duration draft, absl::Duration pass, Instant pass_end,
                           bool completes) {
  if (has_read_prompt()) {
    draft_ += draft;
    verify_ += pass;
  } else if (completes) {
    prompt_end_ = pass_end;
  }
}

Timings SessionTimes::Until(Instant end) const {
  const Instant placed = placed_.value_or(end);
  Timings timings;
  timings.end_to_end = end - submitted_;
  timings.queue = placed - submitted_;
  timings.prompt = prompt_end_.value_or(end) - placed;
  timings.all_prompts = timings.prompt;
  timings.draft = draft_;
  timings.verify = verify_;
  if (first_token_.has_value()) timings.time_to_first_token = *first_token_ - submitted_;
  return timings;
}

}  // namespace tandem
