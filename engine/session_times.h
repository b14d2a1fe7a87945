#ifndef TANDEM_ENGINE_SESSION_TIMES_H_
#define TANDEM_ENGINE_SESSION_TIMES_H_

#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"
#include "tandem/completion.h"

namespace tandem {

// Takes the times of one generation. All are spans of its own wall clock: a pass that it shares
// with others counts whole for each of them. Thread-compatible.
class SessionTimes {
 public:
  explicit SessionTimes(Instant submitted = Instant::Now()) : submitted_(submitted) {}

  Instant submitted() const { return submitted_; }
  // It has a place among those that run. Only the first place counts: if a generation is
  // preempted, its later waiting belongs to the span in which that happened.
  void OnPlace(Instant now);
  // It took part in a round, whose draft and pass took so long; the pass ended at `pass_end`, and
  // read the last of the prompt if `completes`. Rounds after that one belong to the decode span.
  void OnRound(absl::Duration draft, absl::Duration pass, Instant pass_end, bool completes);
  // After a round, the draft took so long to read what the pass had left.
  void OnStatesRead(absl::Duration time) {
    if (has_read_prompt()) draft_ += time;
  }
  void OnFirstToken(Instant now) { first_token_ = now; }
  // Whether a pass has completed the prompt.
  bool has_read_prompt() const { return prompt_end_.has_value(); }

  // The times of a generation that ends at `end`. A span that has not ended lasts until then.
  Timings Until(Instant end) const;

 private:
  Instant submitted_;
  std::optional<Instant> placed_;
  std::optional<Instant> prompt_end_;
  std::optional<Instant> first_token_;
  absl::Duration draft_;   // of the decode span
  absl::Duration verify_;  // of the decode span
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_SESSION_TIMES_H_
