#ifndef TANDEM_CHECKPOINT_WEIGHTS_H_
#define TANDEM_CHECKPOINT_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/matrix.h"

namespace tandem {

// A shape as errors show it, "[2, 3]".
std::string ShapeText(absl::Span<const int64_t> shape);

// The keys of a map, sorted.
template <typename Map>
std::vector<typename Map::key_type> SortedKeys(const Map& map) {
  std::vector<typename Map::key_type> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

// How the matrices of a quantised checkpoint are given: as blocks that stand for the very same
// weights where there are such (kernels/blocks.h), else as floats; or as floats all.
enum class QuantizedForm { kBlocks, kFloats };

// A checkpoint's named tensors, memory-mapped: nothing is read before it is looked at. The bytes
// live as long as this object. Thread-safe after Open.
class Weights {
 public:
  // A Hugging Face folder with model.safetensors, or model.safetensors.index.json and its shards,
  // or, where there are none of these, pytorch_model.bin (torch_file.cc);
  // or the GGUF model that `path` means (GgufIn) or that holds the weights of such a folder
  // (gguf_weights.h). Every header is checked whole: lengths, dtypes, shapes, offsets (inside the
  // file, as long as the shape says, no two overlapping), no tensor twice. A folder whose
  // configuration says that it is quantised has plain matrices here too (quantized_weights.h).
  // INVALID_ARGUMENT or NOT_FOUND naming the file, the tensor, what was found and what is allowed.
  static absl::StatusOr<std::unique_ptr<Weights>> Open(const std::string& path,
                                                       QuantizedForm form = QuantizedForm::kBlocks);
  virtual ~Weights() = default;

  virtual bool Has(std::string_view name) const = 0;
  // The tensor as a matrix; a vector [n] comes as one row of n columns.
  // NOT_FOUND if there is none; INVALID_ARGUMENT if its shape is not `shape` or its dtype is not a
  // floating-point type of DType, or, of a matrix, one of blocks.
  virtual absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                              absl::Span<const int64_t> shape) const = 0;
  // The same without data, with the same errors: nothing is read.
  virtual absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                                   absl::Span<const int64_t> shape) const = 0;
  // The numbers of a tensor of integers, booleans as 0 and 1: `size` of them.
  // NOT_FOUND if there is none; INVALID_ARGUMENT if its shape is not [size] or its dtype another.
  virtual absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                           int64_t size) const = 0;
  // Says that the tensor is not wanted soon: its part of the file need not stay in memory. What Get
  // made is not to be read after that.
  virtual void Forget(std::string_view name) const = 0;  // REQUIRES: Has(name)
  // Whether Get makes the tensor in memory, where it stays until it is forgotten.
  virtual bool IsMade(std::string_view /*name*/) const { return false; }
  // Of a quantised checkpoint, for people: how it was quantised, and what its matrices are here,
  // "gptq: 14 matrices as q4_0"; empty of others.
  virtual std::string quantization() const { return ""; }
  // The files, in the order in which they were opened.
  virtual std::vector<std::string> files() const = 0;
  // The architecture of a GGUF model; empty for others.
  virtual std::string gguf_architecture() const { return ""; }
  // Every tensor's name, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual int64_t num_elements(std::string_view name) const = 0;  // REQUIRES: Has(name)
  // As errors call the tensor: its file, and its name there. REQUIRES: Has(name).
  virtual std::string Where(std::string_view name) const = 0;
};

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_WEIGHTS_H_
