// The standard streams: results go to standard output, which may be on a full disk or a pipe whose
// reader has closed it; the progress of long jobs goes to standard error.
#ifndef TANDEM_TOOLS_STANDARD_STREAMS_H_
#define TANDEM_TOOLS_STANDARD_STREAMS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/instant.h"
#include "nlohmann/json_fwd.hpp"

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
std::string LineOf(const nlohmann::ordered_json& json);
// Prints that line.
absl::Status PrintJson(const nlohmann::ordered_json& json);

// A progress line on standard error for a long job. It appears after one second, only if standard
// error is a terminal, and is erased when the job ends.
class Progress {
 public:
  // `total`: number of steps, of any unit. REQUIRES: total > 0.
  Progress(std::string label, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(int64_t steps);
  // Sets the number of completed steps.
  void AdvanceTo(int64_t done) { Advance(done - done_); }

 private:
  const std::string label_;
  const int64_t total_;
  const bool is_terminal_;
  int64_t done_ = 0;
  Instant start_;
  Instant shown_;  // when the line was last shown; Instant() means never
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_STANDARD_STREAMS_H_
