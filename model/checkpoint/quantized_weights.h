#ifndef TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_H_
#define TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/matrix.h"
#include "model/checkpoint/quantization_config.h"
#include "model/checkpoint/stored_weights.h"
#include "model/checkpoint/weights.h"

namespace tandem {

// Opens a quantised checkpoint as one of plain matrices: "X.weight" in place of "X.qweight" and so
// on. A matrix is made when it is first read, and takes memory until it is forgotten. Tensors that
// change nothing are not listed: scales of activations and caches, and all-zero biases of quantised
// modules, which can still be read by name.
//   files: other files that the result depends on
// INVALID_ARGUMENT or NOT_FOUND, naming the file, the tensor, the value found and the values
// allowed.
absl::StatusOr<std::unique_ptr<Weights>> OpenQuantizedWeights(
    std::unique_ptr<StoredWeights> stored, const QuantizationConfig& config, QuantizedForm form,
    const std::vector<std::string>& files);

// The forms in which a quantised matrix can be given.
struct MatrixForms {
  // A block format (kernels/blocks.h) that holds exactly these weights, if there is one.
  std::optional<DType> blocks;
  std::string why_no_blocks;   // for people, if there is none
  DType floats = DType::kF32;  // 16 bits if they hold every weight exactly
};

// The matrix [rows, cols] of a module, whose tensors have been checked. Thread-safe. The checkpoint
// must outlive it.
class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // The tensors of the checkpoint that it is made of; the numbers come first.
  const std::vector<std::string>& tensors() const { return tensors_; }
  const MatrixForms& forms() const { return forms_; }

  // Writes rows [first, first + count) in one of its forms, row by row. Each weight is the product
  // of two f32: its scale and its number.
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

// These open the matrix of a module, made of the tensors "<module>.qweight" and so on.
// INVALID_ARGUMENT or NOT_FOUND, naming the file, the tensor, the value found and the values
// allowed.
using MatrixOrError = absl::StatusOr<std::unique_ptr<QuantizedMatrix>>;
MatrixOrError OpenGptqMatrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config);
MatrixOrError OpenAwqMatrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config);
// For a "weight_packed".
MatrixOrError OpenPackedMatrix(const StoredWeights& stored, const std::string& module,
                               const QuantizationConfig& config);
// For a "weight" of I8.
MatrixOrError OpenInt8Matrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config);
// For a "weight" of F8_E4M3.
MatrixOrError OpenFp8Matrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config);

// Returns the value of a byte of F8_E4M3: a sign, 4 exponent bits, 3 mantissa bits; no infinities.
float E4m3ToFloat(uint8_t bits);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_QUANTIZED_WEIGHTS_H_
