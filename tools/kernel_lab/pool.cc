#include "tools/kernel_lab/pool.h"

#include <bit>
#include <cmath>

#include "base/float16.h"
#include "base/split_mix.h"
#include "kernels/cuda/product_layout.h"

namespace tandem::kernel_lab {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() { return state_ = SplitMix64(state_); }
  // About normal, of standard deviation `spread`; never 0, 1 or -1.
  float Number(float spread) {
    const uint64_t bits = Bits();
    int sum = -2 * 65535;  // of four uniform numbers, whose deviation is 2 * 65536 / sqrt(12)
    for (int i = 0; i < 4; ++i) sum += static_cast<int>(bits >> 16 * i & 0xFFFF);
    const float number = static_cast<float>(sum) * (spread * 2.6428e-5f);
    return number == 0.0f || std::abs(number) == 1.0f ? 0.6f * spread : number;
  }

 private:
  uint64_t state_;
};

// Returns a pattern of zeros, of at least `bytes` and an odd number of units.
Pool Zeros(size_t bytes, size_t unit) {
  Pool pool;
  pool.unit = unit;
  pool.pattern.resize(((bytes + unit - 1) / unit | 1) * unit);
  return pool;
}

template <typename T>
void Put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

Pool RandomFloats(size_t bytes, float spread, uint64_t seed) {
  Pool pool = Zeros(bytes, 16);
  Random random(seed);
  for (size_t at = 0; at < pool.pattern.size(); at += 4) {
    Put(random.Number(spread), pool.pattern.data() + at);
  }
  return pool;
}

Pool RandomBf16(size_t bytes, float spread, uint64_t seed) {
  Pool pool = Zeros(bytes, 16);
  Random random(seed);
  for (size_t at = 0; at < pool.pattern.size(); at += 2) {
    Put(FloatToBf16(random.Number(spread)), pool.pattern.data() + at);
  }
  return pool;
}

Pool RandomPieces(DType dtype, size_t bytes, uint64_t seed) {
  const cuda::BlockTiles tiles = cuda::BlockTilesOf(dtype);
  Pool pool = Zeros(bytes, tiles.piece_bytes());
  Random random(seed);
  // f16 numbers from 2^-9 to 2^-7, or factors from 1 to 63 and f16 numbers from 2^-14 to 2^-12.
  const auto f16 = [&](uint32_t field) {
    const uint64_t bits = random.Bits();
    return static_cast<uint16_t>((field + (bits >> 20 & 1)) << 10 | (bits & 0x3FF));
  };
  const auto put_scales = [&](std::byte* scales) {
    const int records = tiles.scale_bytes() - (tiles.has_factors() ? cuda::kTileOutputs * 2 : 0);
    for (int i = 0; i < records; i += 2) {
      if (!tiles.has_factors()) Put(f16(6), scales + i);
      if (!tiles.has_factors()) continue;
      scales[i] = static_cast<std::byte>(1 + random.Bits() % 63);
      scales[i + 1] = static_cast<std::byte>(1 + random.Bits() % 63);
    }
    for (int i = records; i < tiles.scale_bytes(); i += 2) Put(f16(1), scales + i);
  };
  for (size_t at = 0; at < pool.pattern.size(); at += pool.unit) {
    std::byte* const piece = pool.pattern.data() + at;
    for (int i = 0; i < tiles.number_bytes(); i += 8) Put(random.Bits(), piece + i);
    put_scales(piece + tiles.scales_at());
    if (tiles.has_minimums) put_scales(piece + tiles.minimums_at());
  }
  return pool;
}

Pool RandomKvBlocks(int head_dim, int page_size, size_t bytes, uint64_t seed) {
  const int words = KvElementWords(KvDType::kInt8, head_dim);
  Pool pool = Zeros(bytes, size_t{4} * page_size * (words + 1));
  Random random(seed);
  for (size_t at = 0; at < pool.pattern.size(); at += pool.unit) {
    std::byte* const block = pool.pattern.data() + at;
    const size_t numbers = size_t{4} * page_size * words;
    for (size_t i = 0; i < numbers; i += 4) Put(static_cast<uint32_t>(random.Bits()), block + i);
    for (size_t i = numbers; i < pool.unit; i += 4) {
      Put(0x1p-7f * (1.0f + static_cast<float>(random.Bits() >> 40) * 0x1p-24f), block + i);
    }
  }
  return pool;
}

}  // namespace tandem::kernel_lab
