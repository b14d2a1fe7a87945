// The standard streams: results on standard output, which may be a full disk or a pipe whose reader
// has gone, and on standard error how far a long job is.
#ifndef TANDEM_TOOLS_STANDARD_STREAMS_H_
#define TANDEM_TOOLS_STANDARD_STREAMS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/instant.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem {

// To be called first of all. Makes a write to a closed pipe, or past the largest size of a file, an
// error of that write and not the end of the process; and takes the places of closed standard
// streams, so that no file opened later gets what is printed.
void PrepareStandardStreams();

// Writes all of `text` at once: results go this way and no other. An error, "standard output: ...",
// means that they are lost: the command has failed and may stop at once.
absl::Status Print(std::string_view text);
// The same of JSON, in one line.
absl::Status PrintJson(const nlohmann::ordered_json& json);

// A line on standard error that tells how far a long job is. Shows nothing in its first second, and
// nothing at all unless standard error is a terminal. Gone when the job ends.
class Progress {
 public:
  // `total` steps, of any unit. REQUIRES: total > 0.
  Progress(std::string label, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(int64_t steps);
  // To so many steps of all.
  void AdvanceTo(int64_t done) { Advance(done - done_); }

 private:
  const std::string label_;
  const int64_t total_;
  const bool is_terminal_;
  int64_t done_ = 0;
  Instant start_;
  Instant shown_;  // when last; Instant(): never
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_STANDARD_STREAMS_H_
