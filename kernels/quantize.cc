#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tandem {
namespace {

// Weights all below this in magnitude count as zeros: what they are divided by might be no normal
// number.
constexpr float kNoWeight = 0x1p-100f;

// To the nearest whole number, to even between two, of |x| < 2^22: the sum's last bits are it.
int32_t Rounded(float x) { return static_cast<int32_t>((x + 0x1.8p23f) - 0x1.8p23f); }

void QuantizeToInt8(const float* weights, int count, std::byte* out, float* scale) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(weights[i]));
  const bool any = largest >= kNoWeight;
  const float inverse = any ? 127.0f / largest : 0.0f;
  *scale = any ? largest / 127.0f : 0.0f;
  for (int i = 0; i < count; ++i) {
    out[i] = static_cast<std::byte>(static_cast<int8_t>(Rounded(weights[i] * inverse)));
  }
}

// The largest becomes -8, of which there is no opposite: so all sixteen numbers are of use.
void QuantizeToInt4(const float* weights, int count, std::byte* out, float* scale) {
  float low = 0.0f;
  float high = 0.0f;
  for (int i = 0; i < count; ++i) {
    low = std::min(low, weights[i]);
    high = std::max(high, weights[i]);
  }
  const float largest = high > -low ? high : low;
  const bool any = std::abs(largest) >= kNoWeight;
  const float inverse = any ? -8.0f / largest : 0.0f;
  *scale = any ? largest / -8.0f : 0.0f;
  uint8_t halves[kQuantizationGroup];
  std::fill_n(halves, (count + 7) / 8 * 8, uint8_t{8});
  for (int i = 0; i < count; ++i) {
    halves[i] = static_cast<uint8_t>(std::min(8 + Rounded(weights[i] * inverse), 15));
  }
  for (int k = 0; k < count; k += 8) {
    for (int i = 0; i < 4; ++i) {
      *out++ = static_cast<std::byte>(halves[k + i] | halves[k + 4 + i] << 4);
    }
  }
}

}  // namespace

void QuantizeGroup(const float* weights, int count, DType dtype, std::byte* out, float* scale) {
  TANDEM_CHECK(count >= 1 && count <= kQuantizationGroup);
  TANDEM_CHECK(dtype == DType::kInt8 || dtype == DType::kInt4);
  if (dtype == DType::kInt8) {
    QuantizeToInt8(weights, count, out, scale);
  } else {
    QuantizeToInt4(weights, count, out, scale);
  }
}

void DequantizeGroup(const std::byte* quantized, int count, DType dtype, float scale,
                     float* weights) {
  for (int i = 0; i < count; ++i) {
    if (dtype == DType::kInt8) {
      weights[i] = static_cast<float>(static_cast<int8_t>(quantized[i])) * scale;
      continue;
    }
    const int byte = static_cast<int>(quantized[i / 8 * 4 + i % 4]);
    weights[i] = static_cast<float>((i % 8 < 4 ? byte & 15 : byte >> 4) - 8) * scale;
  }
}

}  // namespace tandem
