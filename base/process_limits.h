// The part of the machine that this process may use, by its affinity and the limits of its control
// groups, which limit containers (cgroups(7); versions 1 and 2). `root` is the folder that contains
// /proc and /sys, for tests. Thread-safe.
#ifndef TANDEM_BASE_PROCESS_LIMITS_H_
#define TANDEM_BASE_PROCESS_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// Returns the bytes that can be allocated without swapping: the minimum of the machine's available
// memory and the memory left in the process's group and in every group above it. The page cache
// counts as available, because the system drops it when memory is needed. Nullopt if unknown.
std::optional<int64_t> AvailableMemoryBytes(const std::string& root = "");

// Returns the number of cores that this process may use, at least 1. Hyperthreads of one core count
// once, and the number is at most the groups' quota of processor time.
int NumUsableCores(const std::string& root = "");
// The same, but every hyperthread counts. More threads than this only wait for each other.
int NumUsableProcessors(const std::string& root = "");

// Returns freed memory that the C library still holds to the system. Call after freeing something
// large and rare: glibc keeps small pieces until a large one is freed in the same arena. Does
// nothing with other C libraries. Thread-safe; takes some milliseconds per gigabyte.
void ReturnFreeMemory();

}  // namespace tandem

#endif  // TANDEM_BASE_PROCESS_LIMITS_H_
