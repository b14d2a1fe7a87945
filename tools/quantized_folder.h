#ifndef TANDEM_TOOLS_QUANTIZED_FOLDER_H_
#define TANDEM_TOOLS_QUANTIZED_FOLDER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/matrix.h"

namespace tandem {

struct QuantizedFolder {
  int64_t bytes_before = 0;  // of all tensors
  int64_t bytes_after = 0;
  int num_quantized = 0;  // tensors
};

// Writes the model of `source`, a Hugging Face folder of floats, to the new folder `out` with its
// weight matrices as kInt8 or kInt4 (docs/quantization.md); the head gets 8 bits, the embedding
// table stays as it is. Other files are copied. `on_bytes` hears of bytes written, and of how many
// there will be. Errors as reading's and OutputFolder's; INVALID_ARGUMENT if the source is
// quantised already.
absl::StatusOr<QuantizedFolder> WriteQuantizedFolder(
    const std::string& source, DType dtype, const std::string& out,
    absl::FunctionRef<void(int64_t written, int64_t total)> on_bytes);

}  // namespace tandem

#endif  // TANDEM_TOOLS_QUANTIZED_FOLDER_H_
