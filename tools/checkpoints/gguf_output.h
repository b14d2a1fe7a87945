// A GGUF file to be written (checkpoint/gguf.h says how one is laid out).
#ifndef TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_
#define TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/gguf.h"
#include "kernels/matrix.h"

namespace tandem {

// The value of a key: a number, a bool or a text, or an array of such.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>>;

// Everything in front of the tensors' bytes, which follow in the order of AddTensor, each padded
// with PaddingAfter.
class GgufHeader {
 public:
  void Add(std::string_view key, const GgufValue& value);
  // A key of another file as it is there. REQUIRES: file.Has(key).
  void Copy(const GgufFile& file, std::string_view key);

  // shape: [rows, cols], [matrices, rows, cols] or [size]; of blocks, cols must be whole ones
  void AddTensor(std::string_view name, absl::Span<const int64_t> shape, DType dtype);
  void AddInt64Tensor(std::string_view name, int64_t size);

  std::string Bytes() const;
  int64_t tensor_bytes() const { return tensor_bytes_; }  // with padding
  static std::string PaddingAfter(int64_t bytes);

 private:
  void AddTensor(std::string_view name, absl::Span<const int64_t> shape, uint32_t type,
                 int64_t bytes);

  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  int64_t tensor_bytes_ = 0;
  std::string keys_;
  std::string tensors_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_
