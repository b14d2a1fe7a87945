// Random numbers in a device's memory, of which lines use stretches as weights, rows and caches.
#ifndef TANDEM_TOOLS_KERNEL_LAB_POOL_H_
#define TANDEM_TOOLS_KERNEL_LAB_POOL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/paged_kv.h"

namespace tandem::kernel_lab {

inline constexpr int kCachePageSize = 16;  // tokens, as engines have by default

// The pool's content is its pattern again and again, so the host knows every number.
struct Pool {
  std::vector<std::byte> pattern;
  size_t unit = 16;        // stretches begin and end at multiples of it
  void* device = nullptr;  // [bytes]
  size_t bytes = 0;

  const std::byte* on_host(size_t at) const { return pattern.data() + at % pattern.size(); }
  // REQUIRES: `at` is a multiple of sizeof(T), which divides `unit`.
  template <typename T>
  T Read(size_t at) const {
    T value;
    std::memcpy(&value, on_host(at), sizeof(T));
    return value;
  }
};

// Each returns a pattern of at least `bytes`, of whole units. None has zeros or ones.
Pool RandomFloats(size_t bytes, float spread, uint64_t seed);
Pool RandomBf16(size_t bytes, float spread, uint64_t seed);
// Pieces of a weight of a block format (kernels/cuda/product_layout.h).
Pool RandomPieces(DType dtype, size_t bytes, uint64_t seed);
// Blocks of an int8 cache: the numbers and scales of a page's keys, or values, of one head.
Pool RandomKvBlocks(int head_dim, int page_size, size_t bytes, uint64_t seed);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_POOL_H_
