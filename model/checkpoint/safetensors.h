// The safetensors format: the length of the header in 8 bytes, little-endian; the header, a JSON
// object from names to {"dtype", "shape", "data_offsets"} and perhaps "__metadata__"; then the
// tensors' bytes, which the offsets cover without holes. Format:
// https://github.com/huggingface/safetensors#format
#ifndef TANDEM_MODEL_CHECKPOINT_SAFETENSORS_H_
#define TANDEM_MODEL_CHECKPOINT_SAFETENSORS_H_

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
  std::optional<DType> dtype;  // if matrix products can read it
  std::vector<int64_t> shape;
  int64_t num_elements = 0;
  absl::Span<const std::byte> bytes;  // in the file; not necessarily aligned
};

// Reads and checks the whole header of a file in memory; `file_name` is for messages. The entries
// are in the order of their bytes. INVALID_ARGUMENT in one line, naming the file, the tensor, the
// value found and the values allowed.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(absl::Span<const std::byte> file,
                                                               absl::string_view file_name);

// A dtype as the format calls it, "BF16".
struct SafetensorsDType {
  const char* name;
  int64_t bytes;               // of an element
  std::optional<DType> dtype;  // if matrix products can read it
};
// Returns null if there is no such dtype.
const SafetensorsDType* FindSafetensorsDType(absl::string_view name);
// REQUIRES: a dtype of floats.
const char* SafetensorsName(DType dtype);

struct TensorHeader {
  std::string name;
  std::string dtype;  // as the format calls it: "BF16", "U8"
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// Returns the length and the header of a safetensors file with these tensors, sorted by name, whose
// data follow each other. The result is padded to a multiple of 64 bytes, so that the first tensor
// is aligned for every vector load, and to at least `min_bytes`, for data that already has its
// place.
std::string SafetensorsHeader(absl::Span<const TensorHeader> tensors, size_t min_bytes = 0);

// Returns the tensors of a file that torch.save wrote, in the order of its dict, as if a
// safetensors file held them; they may share bytes. INVALID_ARGUMENT in one line, naming the file,
// the tensor or the byte of the pickle, the value found and the values allowed.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseTorchFile(absl::Span<const std::byte> file,
                                                             absl::string_view file_name);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_SAFETENSORS_H_
