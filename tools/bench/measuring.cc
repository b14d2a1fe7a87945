#include "tools/bench/measuring.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

constexpr absl::Duration kQuietTime = absl::Seconds(1);
constexpr absl::Duration kBetweenLines = absl::Milliseconds(500);
constexpr size_t kLongest = 50;  // characters of a description: the line fits into a terminal

}  // namespace

Measuring::Measuring() : is_terminal_(isatty(STDERR_FILENO) != 0) {
  if (is_terminal_) thread_ = std::thread([this] { KeepShowing(); });
}

Measuring::~Measuring() {
  {
    const absl::MutexLock lock(&mutex_);
    ends_ = true;
    Erase();
  }
  if (thread_.joinable()) thread_.join();
}

void Measuring::Expect(int64_t steps) {
  const absl::MutexLock lock(&mutex_);
  num_expected_ += steps;
}

absl::Status Measuring::Begin(std::string what) {
  {
    const absl::MutexLock lock(&mutex_);
    what_ = std::move(what);
  }
  return status();
}

absl::Status Measuring::BeginNext(std::string what) {
  {
    const absl::MutexLock lock(&mutex_);
    ++num_begun_;
  }
  return Begin(std::move(what));
}

absl::Status Measuring::status() const {
  const absl::MutexLock lock(&mutex_);
  return printed_.ok() && InterruptFlag::is_set() ? Interrupted() : printed_;
}

absl::Status Measuring::Print(std::string_view text) {
  const absl::MutexLock lock(&mutex_);
  Erase();
  if (printed_.ok()) printed_ = tandem::Print(text);
  quiet_since_ = Instant::Now();
  return printed_;
}

void Measuring::KeepShowing() {
  const absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&ends_), kBetweenLines)) {
    if (Instant::Now() - quiet_since_ >= kQuietTime) Show();
  }
}

void Measuring::Show() {
  if (what_.empty()) return;
  std::string text = what_.substr(0, kLongest);
  if (num_begun_ > 0 && num_expected_ > 0) {
    const auto done = static_cast<double>(std::min(num_begun_ - 1, num_expected_));
    absl::StrAppendFormat(&text, ", %.0f %% done", 100 * done / static_cast<double>(num_expected_));
  }
  std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
  is_shown_ = true;
}

void Measuring::Erase() {
  if (std::exchange(is_shown_, false)) std::fprintf(stderr, "\r\x1b[K");
}

}  // namespace tandem
