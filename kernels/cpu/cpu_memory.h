#ifndef TANDEM_KERNELS_CPU_CPU_MEMORY_H_
#define TANDEM_KERNELS_CPU_CPU_MEMORY_H_

#include <cstddef>

namespace tandem {

// Allocates memory that is aligned to a cache line. From 2 MiB on it is aligned to huge pages,
// which the system is asked to use: they increased read bandwidth by 8 to 30 %. Pages that are
// never touched use no memory. Returns null if there is not enough memory.
void* AllocateAligned(size_t bytes);
void FreeAligned(void* data, size_t bytes);

// A buffer that only grows. Its contents are lost when it grows.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  // Returns at least `bytes` bytes, aligned as by AllocateAligned. Throws std::bad_alloc if there
  // is not enough memory.
  void* Reserve(size_t bytes);
  void* data() const { return data_; }

 private:
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_CPU_MEMORY_H_
