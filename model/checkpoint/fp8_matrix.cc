// FP8: "weight" [outputs, inputs] of F8_E4M3 and its scales, "weight_scale" or "weight_scale_inv"
// (a factor as well, in spite of its name). There is one scale for the matrix, one for each output,
// or one for each block; the last block of a row or column may be narrower.
#include <array>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "model/checkpoint/grouped_matrix.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

constexpr const char* kFp8DTypes[] = {"F8_E4M3"};

const std::array<float, 256>& E4m3Values() {
  static const auto& values = *new std::array<float, 256>([] {
    std::array<float, 256> floats;
    for (int bits = 0; bits < 256; ++bits) floats[bits] = E4m3ToFloat(static_cast<uint8_t>(bits));
    return floats;
  }());
  return values;
}

class Fp8Matrix final : public QuantizedMatrix {
 public:
  Fp8Matrix(const ModuleTensors& tensors, const SafetensorsEntry& numbers,
            const SafetensorsEntry& scales, int block_rows, int block_cols)
      : QuantizedMatrix(static_cast<int>(numbers.shape[0]), static_cast<int>(numbers.shape[1]),
                        tensors.names()),
        numbers_(numbers.bytes.data()),
        block_rows_(block_rows),
        block_cols_(block_cols),
        scales_across_(CeilDivide(cols(), block_cols)) {
    ExactFloats floats(4, -9, 448.0f);
    scales_.reserve(scales.num_elements);
    for (int64_t i = 0; i < scales.num_elements; ++i) {
      scales_.push_back(FloatAt(scales, i));
      floats.Add(scales_.back());
    }
    forms_.why_no_blocks = "numbers of F8_E4M3";
    forms_.floats = floats.dtype();
  }

  void WriteRows(int first, int count, DType dtype, std::byte* out) const override {
    TANDEM_CHECK(first + count <= rows() && dtype == forms_.floats);
    const std::array<float, 256>& values = E4m3Values();
    std::vector<float> weights(cols());
    for (int row = first; row < first + count; ++row) {
      const std::byte* const numbers = numbers_ + int64_t{row} * cols();
      const float* scale = scales_.data() + int64_t{row / block_rows_} * scales_across_;
      for (int begin = 0; begin < cols(); ++scale) {
        const int end = block_cols_ < cols() - begin ? begin + block_cols_ : cols();
        for (; begin < end; ++begin) {
          weights[begin] = *scale * values[static_cast<uint8_t>(numbers[begin])];
        }
      }
      NarrowRow(weights.data(), cols(), dtype, out);
      out += RowBytes(dtype, cols());
    }
  }

 private:
  const std::byte* const numbers_;
  const int block_rows_;
  const int block_cols_;
  const int64_t scales_across_;
  std::vector<float> scales_;  // [blocks down, blocks across]
};

}  // namespace

float E4m3ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 127) == 127) magnitude = std::nanf("");
  return bits & 128 ? -magnitude : magnitude;
}

MatrixOrError OpenFp8Matrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config) {
  ModuleTensors tensors(stored, module);
  ASSIGN_OR_RETURN(const SafetensorsEntry* const numbers, tensors.GetMatrix("weight", kFp8DTypes));
  const bool has_inverse_name = tensors.Find("weight_scale_inv") != nullptr;
  ASSIGN_OR_RETURN(
      const SafetensorsEntry* const scales,
      tensors.Get(has_inverse_name ? "weight_scale_inv" : "weight_scale", kFloatDTypes));
  const int64_t rows = numbers->shape[0];
  const int64_t cols = numbers->shape[1];
  std::string allowed =
      absl::StrCat("one element, ", ShapeText({rows}), ", ", ShapeText({rows, 1}));
  int block_rows = 0;
  int block_cols = 0;
  if (scales->num_elements == 1) {
    block_rows = static_cast<int>(rows);
    block_cols = static_cast<int>(cols);
  } else if (scales->shape == std::vector<int64_t>{rows} ||
             scales->shape == std::vector<int64_t>{rows, 1}) {
    block_rows = 1;
    block_cols = static_cast<int>(cols);
  }
  for (const WeightScheme& scheme : config.schemes) {
    if (block_rows > 0) break;
    if (!scheme.is_float || scheme.block_rows == 0) continue;
    const int64_t down = CeilDivide(rows, scheme.block_rows);
    const int64_t across = CeilDivide(cols, scheme.block_cols);
    absl::StrAppend(&allowed, ", ", ShapeText({down, across}));
    // modelopt inserts dimensions of 1.
    if (scales->shape != std::vector<int64_t>{down, across} &&
        scales->shape != std::vector<int64_t>{down, 1, across, 1}) {
      continue;
    }
    block_rows = scheme.block_rows;
    block_cols = scheme.block_cols;
  }
  if (block_rows == 0) return tensors.InvalidShape(*scales, allowed);
  return std::make_unique<Fp8Matrix>(tensors, *numbers, *scales, block_rows, block_cols);
}

}  // namespace tandem
