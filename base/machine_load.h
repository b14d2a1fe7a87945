// Measures whether other programs keep the processors busy, so that timings cannot be trusted.
#ifndef TANDEM_BASE_MACHINE_LOAD_H_
#define TANDEM_BASE_MACHINE_LOAD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace tandem {

// Returns the processor time of the calling thread so far. A system call.
absl::Duration ThreadProcessorTime();

// Time that all processors together have spent since boot, in the kernel's ticks of 10 ms.
struct ProcessorTimes {
  int64_t own = 0;    // on this process
  int64_t busy = 0;   // on any process, including this one and time stolen by a hypervisor
  int64_t total = 0;  // busy or idle
};

// Reads /proc/stat and /proc/self/stat in the folder `root`. Returns nullopt if they cannot be
// read. Thread-safe.
std::optional<ProcessorTimes> ReadProcessorTimes(const std::string& root = "");

// Returns the share of the processors' time between two readings that other programs used, in
// [0, 1]; 0 if no time has passed.
double ShareOfOthers(const ProcessorTimes& before, const ProcessorTimes& after);

// Whether other programs used so much of this time that timings cannot be trusted: more than a
// tenth, and more than the 5 ticks by which short intervals are uncertain.
bool IsDisturbed(const ProcessorTimes& before, const ProcessorTimes& after);

// What other programs did to the processors during an interval.
struct OtherLoad {
  std::optional<double> share;  // of the processors' time, if known
  bool is_disturbing = false;   // whether timings of the interval cannot be trusted
};

// Measures the load by other programs from its construction on. Thread-safe.
class LoadWatch {
 public:
  OtherLoad Read() const;

 private:
  const std::optional<ProcessorTimes> before_ = ReadProcessorTimes();
};

}  // namespace tandem

#endif  // TANDEM_BASE_MACHINE_LOAD_H_
