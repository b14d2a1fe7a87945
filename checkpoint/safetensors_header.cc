#include "checkpoint/safetensors_header.h"

#include <algorithm>

#include "nlohmann/json.hpp"

namespace tandem {

const char* SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    default:
      return "";  // blocks have no place in such files
  }
}

std::string SafetensorsHeader(absl::Span<const TensorHeader> tensors, size_t min_bytes) {
  constexpr size_t kAlignment = 64;
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorHeader& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  const size_t bytes = std::max(sizeof(uint64_t) + text.size(), min_bytes);
  text.resize((bytes + kAlignment - 1) / kAlignment * kAlignment - sizeof(uint64_t), ' ');
  std::string length;
  for (size_t i = 0; i < sizeof(uint64_t); ++i) {
    length.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  }
  return length + text;
}

}  // namespace tandem
