// Shared by the tests of block products on all devices: random weights, and the definition of the
// products.
#ifndef TANDEM_KERNELS_BLOCK_TESTING_H_
#define TANDEM_KERNELS_BLOCK_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/blocks.h"

namespace tandem {

// The offsets of the f16 numbers in a block.
inline std::vector<int> F16PlacesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      return {0, 2};
    case DType::kQ2K:
      return {80, 82};
    case DType::kQ3K:
      return {108};
    case DType::kQ6K:
      return {208};
    default:
      return {0};
  }
}

// Rows of blocks of random bytes, except that their f16 numbers are random with a spread of 0.02.
// With `fill`, of this byte in place of random ones.
class RandomBlocks {
 public:
  RandomBlocks(DType dtype, int rows, int cols, std::mt19937& random,
               std::optional<std::byte> fill = std::nullopt)
      : dtype_(dtype), rows_(rows), cols_(cols), bytes_(rows * RowBytes(dtype, cols)) {
    for (std::byte& byte : bytes_) byte = fill.value_or(static_cast<std::byte>(random()));
    const int block_bytes = BlockShapeOf(dtype).bytes;
    std::normal_distribution<float> scale(0.0f, 0.02f);
    for (size_t block = 0; block < bytes_.size(); block += block_bytes) {
      for (const int place : F16PlacesOf(dtype)) {
        const uint16_t bits = FloatToF16(scale(random));
        std::memcpy(bytes_.data() + block + place, &bits, sizeof(bits));
      }
    }
  }
  DType dtype() const { return dtype_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  const std::byte* row(int r) const { return bytes_.data() + r * RowBytes(dtype_, cols_); }
  ConstMatrixView view() const { return {bytes_.data(), dtype_, rows_, cols_, cols_}; }
  std::vector<float> Widened(int r) const {
    std::vector<float> weights(cols_);
    WidenRow(row(r), dtype_, cols_, weights.data());
    return weights;
  }

 private:
  DType dtype_;
  int rows_;
  int cols_;
  std::vector<std::byte> bytes_;
};

// 32 activations, quantised as the contract defines it.
struct DefinedActivations {
  int values[kBlockGroup] = {};
  float scale = 0.0f;

  explicit DefinedActivations(const float* x) {
    float largest = 0.0f;
    for (int i = 0; i < kBlockGroup; ++i) largest = std::max(largest, std::abs(x[i]));
    const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
    scale = largest / 127.0f;
    for (int i = 0; i < kBlockGroup; ++i) {
      values[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
    }
  }
};

inline bool HasHalves(DType dtype) {
  return dtype == DType::kQ2K || dtype == DType::kQ3K || dtype == DType::kQ6K;
}
inline bool HasMinimums(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2K ||
         dtype == DType::kQ4K || dtype == DType::kQ5K;
}

// Adds a group's product to a chain of sums, as docs/numerics.md defines it.
inline float AddGroup(const BlockGroup& weights, DType dtype, const DefinedActivations& x,
                      bool fused, float sum) {
  const auto join = [&](float a, float b) { return fused ? std::fma(a, b, sum) : a * b + sum; };
  const int part = HasHalves(dtype) ? kBlockGroup / 2 : kBlockGroup;
  for (int first = 0; first < kBlockGroup; first += part) {
    int whole = 0;
    int of_row = 0;
    for (int i = first; i < first + part; ++i) {
      whole += weights.NumberOf(i) * x.values[i];
      of_row += x.values[i];
    }
    const int half = first / (kBlockGroup / 2);
    sum = join(static_cast<float>(whole), weights.ScaleOf(half) * x.scale);
    if (HasMinimums(dtype)) {
      sum = join(weights.MinimumOf(half), x.scale * static_cast<float>(of_row));
    }
  }
  return sum;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_BLOCK_TESTING_H_
