#ifndef TANDEM_TOOLS_PROGRESS_H_
#define TANDEM_TOOLS_PROGRESS_H_

#include <cstdint>
#include <string>

#include "base/instant.h"

namespace tandem {

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

#endif  // TANDEM_TOOLS_PROGRESS_H_
