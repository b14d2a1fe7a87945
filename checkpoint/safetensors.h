// The safetensors format: 8 bytes, little-endian, the length of a header; the header, a JSON object
// from names to {"dtype", "shape", "data_offsets"} and perhaps "__metadata__"; then the tensors'
// bytes, which the offsets cover without holes. Format:
// https://github.com/huggingface/safetensors#format
#ifndef TANDEM_CHECKPOINT_SAFETENSORS_H_
#define TANDEM_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/matrix.h"

namespace tandem {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as the file calls it
  std::optional<DType> dtype;  // if it is one that products can read
  std::vector<int64_t> shape;
  int64_t num_elements = 0;
  absl::Span<const std::byte> bytes;  // in the file; not necessarily aligned
};

// Reads and checks the whole header of a file in memory; `file_name` is for messages. The entries
// come in the order of their bytes. INVALID_ARGUMENT, one line naming the file, the tensor, what
// was found and what is allowed.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(absl::Span<const std::byte> file,
                                                               absl::string_view file_name);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_SAFETENSORS_H_
