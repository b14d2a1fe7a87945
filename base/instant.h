#ifndef TANDEM_BASE_INSTANT_H_
#define TANDEM_BASE_INSTANT_H_

#include "absl/time/time.h"

namespace tandem {

// A point in time on a monotonic clock, for durations, time limits and deadlines. The time of day
// (absl::Now) may only be used for timestamps that people read (tests/tidy_test.py).
class Instant {
 public:
  // The infinite past, before all other instants.
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

// Whether `time` is a possible measurement: positive and finite. Other values must be dropped:
// their logarithm would spoil every mean that it enters.
inline bool CanBeElapsed(absl::Duration time) {
  return absl::ZeroDuration() < time && time < absl::InfiniteDuration();
}

// While an object of this class exists, Instant::Now() returns its time. For tests of code that
// waits or measures. Unlike a real clock it can go back. Only one may exist at a time; thread-safe.
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
