#include "tools/bench/measuring.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/format.h"
#include "base/utf8.h"
#include "tools/standard_streams.h"

namespace tandem {

void Measuring::BeginPart(int part, int num_parts) {
  const absl::MutexLock lock(&mutex_);
  part_ = Format("%d of %d: ", part, num_parts);
  num_begun_ = 0;
  num_expected_ = 0;
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
  return printed_.ok() && InterruptFlag::is_set() ? Interrupted() : printed_;
}

absl::Status Measuring::Print(std::string_view text) {
  line_.reset();
  if (printed_.ok()) printed_ = tandem::Print(text);
  StartLine();
  return printed_;
}

void Measuring::StartLine() {
  line_.emplace(absl::Seconds(1), [this] { return Text(); });
}

std::string Measuring::Text() const {
  const absl::MutexLock lock(&mutex_);
  std::string text = part_ + EscapeControls(what_);
  if (num_begun_ == 0 || num_expected_ == 0) return text;
  const auto done = static_cast<double>(std::min(num_begun_ - 1, num_expected_));
  return Format("%s, %.0f %% done", text, 100 * done / static_cast<double>(num_expected_));
}

}  // namespace tandem
