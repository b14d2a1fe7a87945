// Runs lines in a process of their own, so that a line that hangs, crashes or breaks the device
// costs only itself.
#ifndef TANDEM_TOOLS_KERNEL_LAB_SUPERVISOR_H_
#define TANDEM_TOOLS_KERNEL_LAB_SUPERVISOR_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/kernel_lab/json_line.h"
#include "tools/kernel_lab/lines.h"

namespace tandem::kernel_lab {

struct RunOptions {
  int device = 0;
  bool quick = false;
  double seconds = 540.0;  // for all lines
  // A line may take kGraceFactor times its planned time and this time before it is stopped.
  double grace_seconds = 12.0;
  std::string out;  // appended to
};
inline constexpr double kGraceFactor = 4.0;
// The last line is stopped when the time for all lines has been exceeded by this.
inline constexpr double kOverrunSeconds = 5.0;
// The longest time to open the device.
inline constexpr double kOpeningSeconds = 30.0;

// Runs the lines in order, and appends one line of JSON for the device, one for each measurement,
// and one with the skipped lines: those that did not fit in the time. Returns the exit status: 0,
// or 1 if a line failed, or 2 without a device or if the file cannot be written.
int RunLines(const RunOptions& options, const std::vector<Line>& lines);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_SUPERVISOR_H_
