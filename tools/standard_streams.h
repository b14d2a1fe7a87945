// The standard streams: results go to standard output, which may be on a full disk or a pipe whose
// reader has closed it; the progress of long jobs goes to standard error.
#ifndef TANDEM_TOOLS_STANDARD_STREAMS_H_
#define TANDEM_TOOLS_STANDARD_STREAMS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/instant.h"
#include "tandem/json_value.h"
#include "tools/status_line.h"

namespace tandem {

// Call first in main(). Makes a write to a closed pipe, or beyond the maximum size of a file, fail
// instead of ending the process. Opens /dev/null in place of closed standard streams, so that
// output cannot go to a file that is opened later.
void PrepareStandardStreams();

// Writes all of `text` to standard output without buffering. All results must be written with this
// function. An error, "standard output: ...", means that results are lost: the command has failed
// and may stop at once.
absl::Status Print(std::string_view text);
// Returns JSON as one line.
std::string LineOf(const JsonValue& json);
// Returns null in place of no value, or of an empty text.
template <typename Value>
JsonValue OrNull(const std::optional<Value>& value) {
  return value.has_value() ? JsonValue(*value) : JsonValue(nullptr);
}
inline JsonValue OrNull(const std::string& text) {
  return text.empty() ? JsonValue(nullptr) : JsonValue(text);
}
// Prints that line.
absl::Status PrintJson(const JsonValue& json);

// A status line (status_line.h) with the progress of a long job, which appears after one second.
class Progress {
 public:
  // `total`: number of steps, of any unit. REQUIRES: total > 0.
  Progress(std::string label, int64_t total);
  // For a job that reports a share of its work rather than steps.
  explicit Progress(std::string label) : Progress(std::move(label), 1000) {}

  void Advance(int64_t steps) { AdvanceTo(done_ + steps); }
  // Sets the number of completed steps.
  void AdvanceTo(int64_t done) { done_ = std::min(done, total_); }
  // Sets the completed share, from 0 to 1.
  void AdvanceToShare(double share) {
    AdvanceTo(static_cast<int64_t>(share * static_cast<double>(total_)));
  }

 private:
  std::string Text() const;

  const std::string label_;
  const int64_t total_;
  const Instant start_;
  std::atomic<int64_t> done_ = 0;  // the line's thread reads it
  StatusLine line_;                // last: it uses all of the above
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_STANDARD_STREAMS_H_
