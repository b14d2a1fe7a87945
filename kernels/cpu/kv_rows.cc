#include "kernels/cpu/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/float16.h"

namespace tandem {
namespace {

// The place of a row in the cache: word w is at words + w * stride. The scale is separate.
struct RowPlace {
  uint32_t* words;
  int64_t stride;
  float* scale;
};

void StoreF32(const float* row, int head_dim, const RowPlace& to) {
  if (to.stride == 1) {
    std::memcpy(to.words, row, sizeof(float) * head_dim);
    return;
  }
  for (int d = 0; d < head_dim; ++d) std::memcpy(to.words + d * to.stride, row + d, sizeof(float));
}

void StoreBf16(const float* row, int head_dim, const RowPlace& to) {
  for (int d = 0; d < head_dim; d += 2) {
    const uint32_t odd = d + 1 < head_dim ? FloatToBf16(row[d + 1]) : 0u;
    to.words[d / 2 * to.stride] = FloatToBf16(row[d]) | odd << 16;
  }
}

void StoreInt8(const float* row, int head_dim, const RowPlace& to) {
  float largest = 0.0f;
  bool finite = true;
  for (int d = 0; d < head_dim; ++d) {
    largest = std::max(largest, std::abs(row[d]));
    finite = finite && std::isfinite(row[d]);
  }
  *to.scale = finite ? largest / 127.0f : NAN;
  // If the largest element is at most 2^-119, the scale is subnormal, or nearly: store zeros.
  const float inverse = finite && largest > 0x1p-119f ? 127.0f / largest : 0.0f;
  for (int d = 0; d < head_dim; d += 4) {
    uint32_t word = 0;
    for (int j = 0; j < 4 && d + j < head_dim; ++j) {
      const float scaled = finite ? row[d + j] * inverse : 0.0f;
      // The sum with 1.5 * 2^23 has no fraction bits, so the integer is in its low bits.
      const float rounded = scaled + 0x1.8p23f;
      uint32_t bits;
      std::memcpy(&bits, &rounded, sizeof(bits));
      word |= (bits & 0xFF) << (8 * j);
    }
    to.words[d / 4 * to.stride] = word;
  }
}

void Store(KvDType dtype, const float* row, int head_dim, const RowPlace& to) {
  switch (dtype) {
    case KvDType::kF32:
      return StoreF32(row, head_dim, to);
    case KvDType::kBF16:
      return StoreBf16(row, head_dim, to);
    case KvDType::kInt8:
      return StoreInt8(row, head_dim, to);
  }
}

}  // namespace

void StoreKvRow(const PagedKvView& kv, int64_t page, int kv_head, int place, const float* key,
                const float* value) {
  const int64_t block = kv.BlockOf(page, kv_head);
  const int words = KvElementWords(kv.dtype, kv.head_dim);
  const int64_t scale = static_cast<int64_t>(kv.page_size) * words + place;
  auto* keys = static_cast<uint32_t*>(kv.keys) + block;
  auto* values = static_cast<uint32_t*>(kv.values) + block;
  const bool scaled = kv.dtype == KvDType::kInt8;
  Store(kv.dtype, key, kv.head_dim,
        {.words = keys + place,
         .stride = kv.page_size,
         .scale = scaled ? reinterpret_cast<float*>(keys + scale) : nullptr});
  Store(kv.dtype, value, kv.head_dim,
        {.words = values + static_cast<int64_t>(place) * words,
         .stride = 1,
         .scale = scaled ? reinterpret_cast<float*>(values + scale) : nullptr});
}

}  // namespace tandem
