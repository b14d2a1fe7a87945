#include "kernels/widen_row.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace tandem {

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
    case DType::kInt4:
      break;
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem
