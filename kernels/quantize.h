#ifndef TANDEM_KERNELS_QUANTIZE_H_
#define TANDEM_KERNELS_QUANTIZE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

namespace tandem {

// Weights as whole numbers with one f32 scale for every kQuantizationGroup inputs of an output; the
// last group of an output may be shorter. The layout of a row, in memory as in files
// (docs/quantization.md):
//   int8: a signed byte per input, in [-127, 127]; weight = byte * scale.
//   int4: four bytes for eight inputs k to k + 7: byte i holds input k + i in its low half and
//         input k + 4 + i in its high half, 8 more than it is; weight = (half - 8) * scale. Inputs
//         behind the last are 8 as well.
inline constexpr int kQuantizationGroup = 128;

// Bytes of `inputs` weights of kInt8 or kInt4.
inline constexpr size_t QuantizedBytes(DType dtype, int inputs) {
  return dtype == DType::kInt8 ? inputs : (static_cast<size_t>(inputs) + 7) / 8 * 4;
}
inline constexpr int QuantizationGroups(int inputs) {
  return (inputs + kQuantizationGroup - 1) / kQuantizationGroup;
}

// Quantises `count` <= kQuantizationGroup finite weights of one group.
//   out: QuantizedBytes(dtype, count)
void QuantizeGroup(const float* weights, int count, DType dtype, std::byte* out, float* scale);

// What the weights of a group are after that.
void DequantizeGroup(const std::byte* quantized, int count, DType dtype, float scale,
                     float* weights);

}  // namespace tandem

#endif  // TANDEM_KERNELS_QUANTIZE_H_
