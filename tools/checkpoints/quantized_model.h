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
  int num_quantized = 0;  // matrices, each expert's among them
};

// Writes the model of `source`, a Hugging Face folder, quantised or not, or a GGUF file of floats,
// with its weight matrices in a block format (docs/quantization.md); the embedding and the head get
// Q8_0. Where `out` ends in ".gguf" it becomes one file that needs nothing beside it; else a new
// folder with model.gguf and copies of the source's other files. `on_bytes` hears of bytes written,
// and of how many there will be. Errors as reading's and OutputFolder's; INVALID_ARGUMENT if a
// matrix has blocks already, or if the one file cannot say all that the folder does.
absl::StatusOr<QuantizedModel> WriteQuantizedModel(
    const std::string& source, DType dtype, const std::string& out,
    absl::FunctionRef<void(int64_t written, int64_t total)> on_bytes);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_QUANTIZED_MODEL_H_
