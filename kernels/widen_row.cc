#include "kernels/widen_row.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/blocks.h"

namespace tandem {
namespace {

void WidenBlocks(const std::byte* row, DType dtype, int size, float* out) {
  for (int first = 0; first < size; first += kBlockGroup) {
    const BlockGroup group = ReadBlockGroup(row, dtype, first / kBlockGroup);
    for (int i = 0; i < kBlockGroup; ++i) {
      const float product = group.ScaleOf(i / 16) * static_cast<float>(group.NumberOf(i));
      out[first + i] = product + group.MinimumOf(i / 16);
    }
  }
}

}  // namespace

void WidenRow(const void* row, DType dtype, int size, float* out) {
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

}  // namespace tandem
