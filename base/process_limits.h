// What of its machine this process may use: its affinity, and the limits of the control groups that
// hold it, which is how containers are limited (cgroups(7); versions 1 and 2). `root` is the folder
// in which /proc and /sys are found; for tests. Thread-safe.
#ifndef TANDEM_BASE_PROCESS_LIMITS_H_
#define TANDEM_BASE_PROCESS_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// Bytes that new allocations may take without swapping: the least of what the machine has available
// and of what is left in the process's group and in every group above it. Pages of files count as
// left, because they are dropped when memory is wanted. Nothing if none of this is known.
std::optional<int64_t> AvailableMemoryBytes(const std::string& root = "");

// Cores that this process may use, hyperthreads of one core counted once, and no more than its
// groups' quotas of processor time keep busy; at least 1.
int NumUsableCores(const std::string& root = "");
// The same, hyperthreads counted each: threads beyond these only wait for each other.
int NumUsableProcessors(const std::string& root = "");

// Gives back to the system what the C library keeps of freed memory, for after something large and
// rare: glibc keeps small pieces until a large one is freed in the same arena. Does nothing with
// other C libraries. Thread-safe; takes some milliseconds for a gigabyte.
void ReturnFreeMemory();

}  // namespace tandem

#endif  // TANDEM_BASE_PROCESS_LIMITS_H_
