#include "kernels/cpu/cpu_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace tandem {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::align_val_t AlignmentFor(size_t bytes) {
  return std::align_val_t{bytes >= kHugePage ? kHugePage : kCacheLine};
}

void* MapHuge(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePage) return nullptr;
  const size_t wanted = RoundUp(bytes, kHugePage);
  const size_t mapped = wanted + kHugePage;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(data);
  const size_t before =
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (before > 0) munmap(begin, before);
  if (mapped > before + wanted) munmap(begin + before + wanted, mapped - before - wanted);
  madvise(begin + before, wanted, MADV_HUGEPAGE);  // only faster: a failure is harmless
  return begin + before;
}

}  // namespace

void* AllocateAligned(size_t bytes) {
  if (bytes >= kHugePage) return MapHuge(bytes);
  return ::operator new (bytes, std::align_val_t{kCacheLine}, std::nothrow);
}

void FreeAligned(void* data, size_t bytes) {
  if (bytes >= kHugePage) {
    munmap(data, RoundUp(bytes, kHugePage));
  } else {
    ::operator delete (data, std::align_val_t{kCacheLine});
  }
}

void* Scratch::Reserve(size_t bytes) {
  if (bytes > bytes_) {
    Free();
    data_ = ::operator new(bytes, AlignmentFor(bytes));
    bytes_ = bytes;
    if (bytes >= kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  return data_;
}

void Scratch::Free() {
  ::operator delete(data_, AlignmentFor(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tandem
