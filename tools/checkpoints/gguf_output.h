// A GGUF file to be written (checkpoint/gguf.h describes the layout), and its keys for a model and
// its tokenizer.
#ifndef TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_
#define TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"
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

// Adds the architecture, the sizes and what there are keys for of the rest. REQUIRES: the family
// has an architecture.
void AddConfigKeys(const ModelConfig& config, const GgufForm& form, GgufHeader* header);

// Tensors that are of the configuration: what divides the angles of heads.
struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;  // [rotary_dim / 2]
};
std::vector<GgufRopeTensor> RopeTensorsOf(const ModelConfig& config);

// Whether a file that begins with these bytes, its rope tensors included, is read as this
// configuration, end tokens aside. INVALID_ARGUMENT that begins with `source` and names what has no
// place in a GGUF file.
absl::Status CheckIsReadAs(const ModelConfig& config, absl::string_view beginning,
                           const std::string& source);

// That error.
absl::Status HasNoPlaceInGguf(const std::string& source, const std::string& what);

// Adds the folder's tokenizer, end tokens and chat template, so that the file is complete. A GGUF
// file can hold byte-level BPE with one of the pre-tokenizers that have a name there, and
// SentencePiece's kind of BPE where scores can express the merges. INVALID_ARGUMENT names what it
// cannot hold.
absl::Status AddTextKeys(const std::string& folder, const ModelConfig& config, GgufHeader* header);

// Marks the file as one without a tokenizer; other programs then read it with ids alone.
void AddNoTextKeys(GgufHeader* header);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_
