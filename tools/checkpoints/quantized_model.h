#ifndef TANDEM_TOOLS_CHECKPOINTS_QUANTIZED_MODEL_H_
#define TANDEM_TOOLS_CHECKPOINTS_QUANTIZED_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/matrix.h"

namespace tandem {

struct QuantizedModel {
  int64_t bytes_before = 0;  // of all tensors
  int64_t bytes_after = 0;
  int num_quantized = 0;  // matrices; each expert's count separately
};

// Writes the model at `source` with its weight matrices in a block format (docs/quantization.md);
// the embedding and the head get Q8_0. `source` is a Hugging Face folder, quantised or not, or a
// GGUF file of floats. If `out` ends in ".gguf", the result is one complete file; otherwise it is a
// new folder with model.gguf and copies of the source's other files. `on_bytes` gets the number of
// bytes just written and the total to write. Returns errors of reading and of OutputFolder;
// INVALID_ARGUMENT if a matrix is in a block format already, or if a GGUF file cannot express a
// setting of the folder.
absl::StatusOr<QuantizedModel> WriteQuantizedModel(
    const std::string& source, DType dtype, const std::string& out,
    absl::FunctionRef<void(int64_t written, int64_t total)> on_bytes);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_QUANTIZED_MODEL_H_
