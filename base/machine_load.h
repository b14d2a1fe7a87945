// Tells whether other programs keep the processors busy, so that timings cannot be trusted.
#ifndef TANDEM_BASE_MACHINE_LOAD_H_
#define TANDEM_BASE_MACHINE_LOAD_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// Time that all processors together have spent so far, in the kernel's ticks of 10 ms.
struct ProcessorTimes {
  int64_t own = 0;    // on this process
  int64_t busy = 0;   // on anything, this process included; time stolen by a hypervisor too
  int64_t total = 0;  // busy or idle
};

// Read from /proc/stat and /proc/self/stat in the folder `root`; nothing where they cannot be read.
// Thread-safe.
std::optional<ProcessorTimes> ReadProcessorTimes(const std::string& root = "");

// The share of the processors' time between two readings that went to other programs: in [0, 1], 0
// of no time.
double ShareOfOthers(const ProcessorTimes& before, const ProcessorTimes& after);

// Whether others took so much of it that timings tell more of them than of this process: above a
// tenth, and more than the ticks by which short spans are uncertain.
bool IsDisturbed(const ProcessorTimes& before, const ProcessorTimes& after);

}  // namespace tandem

#endif  // TANDEM_BASE_MACHINE_LOAD_H_
