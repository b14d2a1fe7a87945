#ifndef TANDEM_TOOLS_SAFETENSORS_HEADER_H_
#define TANDEM_TOOLS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/matrix.h"

namespace tandem {

// What the format calls a dtype; four bits are packed in its bytes.
const char* SafetensorsName(DType dtype);

struct TensorHeader {
  std::string name;
  std::string dtype;  // as the format calls it: "BF16", "I8"
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// The header of a safetensors file whose data are these tensors, sorted by name, one after the
// other, and the length in front of it; padded to 64 bytes so that the first tensor is aligned for
// every vector load.
std::string SafetensorsHeader(absl::Span<const TensorHeader> tensors);

}  // namespace tandem

#endif  // TANDEM_TOOLS_SAFETENSORS_HEADER_H_
