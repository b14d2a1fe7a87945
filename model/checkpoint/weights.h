#ifndef TANDEM_MODEL_CHECKPOINT_WEIGHTS_H_
#define TANDEM_MODEL_CHECKPOINT_WEIGHTS_H_

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

// Formats a shape for errors: "[2, 3]".
std::string ShapeText(absl::Span<const int64_t> shape);

// Returns the keys of a map, sorted.
template <typename Map>
std::vector<typename Map::key_type> SortedKeys(const Map& map) {
  std::vector<typename Map::key_type> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

// How the matrices of a quantised checkpoint are given: as blocks with exactly the same weights if
// there is a format for them (kernels/blocks.h), else as floats; or all as floats.
enum class QuantizedForm { kBlocks, kFloats };

// A checkpoint's named tensors, memory-mapped: a tensor's bytes are read from disk when they are
// first accessed. The bytes live as long as this object. Thread-safe after Open.
class Weights {
 public:
  // Opens a Hugging Face folder with model.safetensors, with model.safetensors.index.json and its
  // shards, or, without either, with pytorch_model.bin (torch_file.cc); or the GGUF model that
  // `path` means (GgufIn) or that holds the weights of such a folder (gguf_weights.h). Checks every
  // header completely: lengths, dtypes, shapes, offsets (inside the file, as long as the shape
  // says, no two overlapping), and that each tensor exists once. A folder whose configuration says
  // that it is quantised also gives plain matrices (quantized_weights.h). Returns INVALID_ARGUMENT
  // or NOT_FOUND, naming the file, the tensor, the value found and the values allowed.
  static absl::StatusOr<std::unique_ptr<Weights>> Open(const std::string& path,
                                                       QuantizedForm form = QuantizedForm::kBlocks);
  virtual ~Weights() = default;

  virtual bool Has(std::string_view name) const = 0;
  // Returns the tensor as a matrix; a vector [n] is one row of n columns. NOT_FOUND if it is
  // absent; INVALID_ARGUMENT if its shape is not `shape` or its dtype is not a floating-point type
  // of DType or, for a matrix, a block format.
  virtual absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                              absl::Span<const int64_t> shape) const = 0;
  // The same without data, with the same errors; does not read the tensor.
  virtual absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                                   absl::Span<const int64_t> shape) const = 0;
  // Returns the `size` numbers of a tensor of integers, with booleans as 0 and 1. NOT_FOUND if it
  // is absent; INVALID_ARGUMENT if its shape is not [size] or its dtype is not an integer.
  virtual absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                           int64_t size) const = 0;
  // Releases the tensor: its part of the file need not stay in memory. A matrix that Get made must
  // not be used afterwards.
  virtual void Forget(std::string_view name) const = 0;  // REQUIRES: Has(name)
  // Returns whether Get makes the tensor in memory, where it stays until it is forgotten.
  virtual bool IsMade(std::string_view /*name*/) const { return false; }
  // Describes, for people, how a quantised checkpoint was quantised and the form of its matrices
  // here: "gptq: 14 matrices as q4_0". Empty for other checkpoints.
  virtual std::string quantization() const { return ""; }
  // The files, in the order in which they were opened.
  virtual std::vector<std::string> files() const = 0;
  // The architecture of a GGUF model; empty for others.
  virtual std::string gguf_architecture() const { return ""; }
  // The names of all tensors, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual int64_t num_elements(std::string_view name) const = 0;  // REQUIRES: Has(name)
  // The tensor as errors name it: its file, and its name there. REQUIRES: Has(name).
  virtual std::string Where(std::string_view name) const = 0;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_WEIGHTS_H_
