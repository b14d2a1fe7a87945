// Writes GGUF files (model/checkpoint/gguf.h describes the layout): the header, and the keys for a
// model and its tokenizer.
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
#include "kernels/matrix.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"

namespace tandem {

// The value of a key: a number, a bool or a string, or an array of one of these.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>>;

// Everything before the tensors' bytes, which follow in the order of AddTensor calls, each padded
// with PaddingAfter.
class GgufHeader {
 public:
  void Add(std::string_view key, const GgufValue& value);
  // Copies a key of another file unchanged. REQUIRES: file.Has(key).
  void Copy(const GgufFile& file, std::string_view key);

  // `shape`: [rows, cols], [matrices, rows, cols] or [size]. For a block format, cols must be a
  // multiple of the block size.
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

// Adds the architecture, the sizes and every other setting that has a GGUF key. REQUIRES: the
// family has an architecture.
void AddConfigKeys(const ModelConfig& config, const GgufForm& form, GgufHeader* header);

// A tensor that is part of the configuration: divisors of the rotation frequencies.
struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;  // [rotary_dim / 2]
};
std::vector<GgufRopeTensor> RopeTensorsOf(const ModelConfig& config);

// Checks that a file that begins with these bytes, including the rope tensors, is read as this
// configuration, apart from the end tokens. The INVALID_ARGUMENT otherwise begins with `source` and
// names the setting that has no place in a GGUF file.
absl::Status CheckIsReadAs(const ModelConfig& config, absl::string_view beginning,
                           const std::string& source);

// Makes that error.
absl::Status HasNoPlaceInGguf(const std::string& source, const std::string& what);

// Adds the folder's tokenizer, end tokens and chat template, so that the file is complete. A GGUF
// file can hold byte-level BPE with a pre-tokenizer that has a name in GGUF, and SentencePiece's
// kind of BPE if scores can express the merges. INVALID_ARGUMENT names the property that it cannot
// hold.
absl::Status AddTextKeys(const std::string& folder, const ModelConfig& config, GgufHeader* header);

// Marks the file as one without a tokenizer; other programs can then use it with token ids only.
void AddNoTextKeys(GgufHeader* header);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_OUTPUT_H_
