#ifndef TANDEM_CHECKPOINT_SAFETENSORS_HEADER_H_
#define TANDEM_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/matrix.h"

namespace tandem {

// What the format calls a dtype of floats.
const char* SafetensorsName(DType dtype);

struct TensorHeader {
  std::string name;
  std::string dtype;  // as the format calls it: "BF16", "U8"
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// The header of a safetensors file whose data are these tensors, sorted by name, one after the
// other, and the length in front of it; padded to 64 bytes so that the first tensor is aligned for
// every vector load, and to `min_bytes` in all, where the data have a place already.
std::string SafetensorsHeader(absl::Span<const TensorHeader> tensors, size_t min_bytes = 0);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_SAFETENSORS_HEADER_H_
