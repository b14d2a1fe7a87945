#ifndef TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_
#define TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/stored_weights.h"
#include "checkpoint/weights.h"
#include "kernels/matrix.h"

namespace tandem {

// The tensors of a quantised checkpoint as if it were one of plain matrices: "X.weight" in place of
// "X.qweight" and its like. A matrix is made when it is wanted, and takes memory until it is
// forgotten. Tensors that change nothing are left out: scales for activations and caches, and
// biases of zeros of quantised modules, where nobody asks for them by name.
//   files: what else the result depends on
// INVALID_ARGUMENT or NOT_FOUND naming the file, the tensor, what was found and what is allowed.
absl::StatusOr<std::unique_ptr<Weights>> OpenQuantizedWeights(
    std::unique_ptr<StoredWeights> stored, const QuantizationConfig& config, QuantizedForm form,
    const std::vector<std::string>& files);

// How a quantised matrix may be given.
struct MatrixForms {
  // A block format (kernels/blocks.h) with the very same weights; nothing where there is none.
  std::optional<DType> blocks;
  std::string why_no_blocks;   // for people, where there is none
  DType floats = DType::kF32;  // 16 bits where these hold every weight
};

// A matrix [rows, cols] of the module of that name, whose tensors have been checked. Thread-safe.
// The checkpoint must outlive it.
class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // The checkpoint's tensors that it is made of; the first is the one with the numbers.
  const std::vector<std::string>& tensors() const { return tensors_; }
  const MatrixForms& forms() const { return forms_; }

  // Rows [first, first + count) in one of its forms, row after row. Each weight is the product of
  // two f32, its scale and its number.
  //   out: [count, RowBytes(dtype, cols)]
  virtual void WriteRows(int first, int count, DType dtype, std::byte* out) const = 0;

 protected:
  QuantizedMatrix(int rows, int cols, std::vector<std::string> tensors)
      : rows_(rows), cols_(cols), tensors_(std::move(tensors)) {}

  MatrixForms forms_;

 private:
  const int rows_;
  const int cols_;
  const std::vector<std::string> tensors_;
};

// The matrix of a module, made of the tensors "<module>.qweight" and so on. INVALID_ARGUMENT or
// NOT_FOUND names the file, the tensor, the value found and those allowed.
using MatrixOrError = absl::StatusOr<std::unique_ptr<QuantizedMatrix>>;
MatrixOrError OpenGptqMatrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config);
MatrixOrError OpenAwqMatrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config);
// Of "weight_packed".
MatrixOrError OpenPackedMatrix(const StoredWeights& stored, const std::string& module,
                               const QuantizationConfig& config);
// For a "weight" of I8.
MatrixOrError OpenInt8Matrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config);
// For a "weight" of F8_E4M3.
MatrixOrError OpenFp8Matrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config);

// The value of a byte of F8_E4M3: a sign, 4 bits of exponent, 3 of mantissa; no infinities.
float E4m3ToFloat(uint8_t bits);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_
