#include "kernels/widen_row.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/block_reading.h"
#include "kernels/blocks.h"

namespace tandem {
namespace {

template <DType kDType>
void WidenBlocksOf(const std::byte* row, int size, float* out) {
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

void WidenBlocks(const std::byte* row, DType dtype, int size, float* out) {
  WithBlockFormat(dtype, [&]<DType kDType>() { WidenBlocksOf<kDType>(row, size, out); });
}

}  // namespace

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
      WidenBlocks(static_cast<const std::byte*>(row), dtype, size, out);
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
