#ifndef TANDEM_BASE_INSTANT_H_
#define TANDEM_BASE_INSTANT_H_

#include "absl/time/time.h"

namespace tandem {

// A moment on a clock that never goes back, whatever happens to the time of day: for durations,
// time limits and deadlines. The time of day (absl::Now) is for stamps that people read, and for
// nothing else (tests/tidy_test.cc).
class Instant {
 public:
  // No moment in particular, before all others.
  constexpr Instant() : since_origin_(-absl::InfiniteDuration()) {}
  static Instant Now();
  static constexpr Instant InfinitePast() { return Instant(); }
  static constexpr Instant InfiniteFuture() { return Instant(absl::InfiniteDuration()); }

  friend Instant operator+(Instant a, absl::Duration b) { return Instant(a.since_origin_ + b); }
  friend Instant operator-(Instant a, absl::Duration b) { return Instant(a.since_origin_ - b); }
  friend absl::Duration operator-(Instant a, Instant b) {
    return a.since_origin_ - b.since_origin_;
  }
  friend bool operator==(Instant a, Instant b) { return a.since_origin_ == b.since_origin_; }
  friend bool operator!=(Instant a, Instant b) { return !(a == b); }
  friend bool operator<(Instant a, Instant b) { return a.since_origin_ < b.since_origin_; }
  friend bool operator>(Instant a, Instant b) { return b < a; }
  friend bool operator<=(Instant a, Instant b) { return !(b < a); }
  friend bool operator>=(Instant a, Instant b) { return !(a < b); }

 private:
  friend class FakeClock;
  explicit constexpr Instant(absl::Duration since_origin) : since_origin_(since_origin) {}

  absl::Duration since_origin_;
};

// Whether something can have taken so long: nothing takes no time, or less, or forever. What does
// not is no measurement: its logarithm would spoil every mean that it enters.
inline bool CanBeElapsed(absl::Duration time) {
  return absl::ZeroDuration() < time && time < absl::InfiniteDuration();
}

// While one lives, Instant::Now() is what it says: for tests of what waits or measures. It may be
// set back, as no real clock can be. One at a time; thread-safe.
class FakeClock {
 public:
  FakeClock();
  ~FakeClock();
  FakeClock(const FakeClock&) = delete;
  FakeClock& operator=(const FakeClock&) = delete;

  void Advance(absl::Duration by);  // may be negative
};

}  // namespace tandem

#endif  // TANDEM_BASE_INSTANT_H_
