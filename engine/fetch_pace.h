#ifndef TANDEM_ENGINE_FETCH_PACE_H_
#define TANDEM_ENGINE_FETCH_PACE_H_

#include "absl/time/time.h"

namespace tandem {

// Waiting for pages delays a prompt by at most this share of the time that computing it takes. A
// prompt waits longer for another worker than for a disk: computing it would delay the answers in
// progress, and the first transfer has to connect.
inline constexpr double kMostStoreDelay = 0.05;
inline constexpr double kMostTransferDelay = 0.5;

// Whether a prompt goes on waiting after `waited`, when `num_arrived` of the `num_missing` tokens
// that it lacked have come: as long as computing those would have taken, and `most_delay` of
// computing all. It does not wait where the speed is not known, 0.
inline bool StillPays(absl::Duration waited, int num_arrived, int num_missing,
                      double tokens_per_second, double most_delay) {
  if (tokens_per_second <= 0.0) return false;
  return waited <= absl::Seconds((num_arrived + most_delay * num_missing) / tokens_per_second);
}

// How fast prompts are read, in tokens a second: the best of late, because waiting for too long
// costs more than not to wait.
class ReadingSpeed {
 public:
  // 0 if nothing is known.
  explicit ReadingSpeed(double tokens_per_second = 0.0) : tokens_per_second_(tokens_per_second) {}

  // Passes over few tokens say nothing.
  void Observe(int num_tokens, absl::Duration time) {
    constexpr int kLeastTokens = 16;
    constexpr double kWeightOfSlower = 0.1;
    if (num_tokens < kLeastTokens || time <= absl::ZeroDuration()) return;
    const double now = num_tokens / absl::ToDoubleSeconds(time);
    tokens_per_second_ = now > tokens_per_second_
                             ? now
                             : tokens_per_second_ + kWeightOfSlower * (now - tokens_per_second_);
  }
  double tokens_per_second() const { return tokens_per_second_; }

 private:
  double tokens_per_second_;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_FETCH_PACE_H_
