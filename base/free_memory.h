#ifndef TANDEM_BASE_FREE_MEMORY_H_
#define TANDEM_BASE_FREE_MEMORY_H_

namespace tandem {

// Gives back to the system what the C library keeps of freed memory, for after something large and
// rare: glibc keeps small pieces until a large one is freed in the same arena. Does nothing with
// other C libraries. Thread-safe; takes some milliseconds for a gigabyte.
void ReturnFreeMemory();

}  // namespace tandem

#endif  // TANDEM_BASE_FREE_MEMORY_H_
