#include "kernels/blocks.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/block_reading.h"

namespace tandem {
namespace {

constexpr int kSuperBlock = 256;  // weights of a block of the K formats and of IQ4_XS

template <DType kDType>
void WidenBlocks(const std::byte* row, int size, float* out) {
  const BlockShape shape = BlockShapeOf(kDType);
  for (int first = 0; first < size; first += kBlockGroup, out += kBlockGroup) {
    const std::byte* const block = row + static_cast<size_t>(first / shape.inputs) * shape.bytes;
    const BlockGroup group = block_reading::ReadGroup<kDType>(block_reading::Block(block),
                                                              first % shape.inputs / kBlockGroup);
    for (int half = 0; half < 2; ++half) {
      const float scale = group.ScaleOf(half);
      const float minimum = group.MinimumOf(half);
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        const float product = scale * static_cast<float>(group.NumberOf(i));
        out[i] = product + minimum;
      }
    }
  }
}

}  // namespace

BlockShape BlockShapeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {1, static_cast<int>(SizeOf(dtype))};
    case DType::kInt8:
      break;
    case DType::kQ8_0:
      return {kBlockGroup, 34};
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return {kBlockGroup, 18};
    case DType::kQ4_1:
      return {kBlockGroup, 20};
    case DType::kQ5_0:
      return {kBlockGroup, 22};
    case DType::kQ5_1:
      return {kBlockGroup, 24};
    case DType::kQ2K:
      return {kSuperBlock, 84};
    case DType::kQ3K:
      return {kSuperBlock, 110};
    case DType::kQ4K:
      return {kSuperBlock, 144};
    case DType::kQ5K:
      return {kSuperBlock, 176};
    case DType::kQ6K:
      return {kSuperBlock, 210};
    case DType::kIq4Xs:
      return {kSuperBlock, 136};
  }
  TANDEM_CHECK(false);
}

size_t RowBytes(DType dtype, int64_t cols) {
  const BlockShape shape = BlockShapeOf(dtype);
  TANDEM_CHECK(cols % std::min(shape.inputs, kBlockGroup) == 0);
  return static_cast<size_t>((cols + shape.inputs - 1) / shape.inputs) * shape.bytes;
}

BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group) {
  const BlockShape shape = BlockShapeOf(dtype);
  const int groups = shape.inputs / kBlockGroup;  // in a block
  TANDEM_CHECK(groups > 0);
  const std::byte* const block = row + static_cast<size_t>(group / groups) * shape.bytes;
  return WithBlockFormat(dtype, [&]<DType kDType>() {
    return block_reading::ReadGroup<kDType>(block_reading::Block(block), group % groups);
  });
}

void WidenRow(const void* row, DType dtype, int size, float* out) {
  TANDEM_DCHECK(size >= 0);
  const auto* bits = static_cast<const uint16_t*>(row);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, row, size * sizeof(float));
      return;
    case DType::kF16:
      for (int i = 0; i < size; ++i) out[i] = F16ToFloat(bits[i]);
      return;
    case DType::kBF16:
      for (int i = 0; i < size; ++i) out[i] = Bf16ToFloat(bits[i]);
      return;
    case DType::kInt8:
      TANDEM_CHECK(false);
    default:
      WithBlockFormat(dtype, [&]<DType kDType>() {
        WidenBlocks<kDType>(static_cast<const std::byte*>(row), size, out);
      });
  }
}

void NarrowRow(const float* values, int count, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values, count * sizeof(float));
    return;
  }
  for (int i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kF16 ? FloatToF16(values[i]) : FloatToBf16(values[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace tandem
