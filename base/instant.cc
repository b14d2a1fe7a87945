#include "base/instant.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/check.h"

namespace tandem {
namespace {

std::atomic<bool> is_faked{false};
std::atomic<int64_t> fake_nanoseconds{0};

}  // namespace

Instant Instant::Now() {
  if (is_faked.load(std::memory_order_relaxed)) {
    return Instant(absl::Nanoseconds(fake_nanoseconds.load()));
  }
  return Instant(absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
}

FakeClock::FakeClock() {
  fake_nanoseconds = absl::ToInt64Nanoseconds(Instant::Now().since_origin_);
  TANDEM_CHECK(!is_faked.exchange(true));
}

FakeClock::~FakeClock() { is_faked = false; }

void FakeClock::Advance(absl::Duration by) { fake_nanoseconds += absl::ToInt64Nanoseconds(by); }

}  // namespace tandem
