// Models with random weights, so that benchmarks and tests need no downloads.
#ifndef TANDEM_TOOLS_CHECKPOINTS_RANDOM_MODEL_H_
#define TANDEM_TOOLS_CHECKPOINTS_RANDOM_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"

namespace tandem {

struct RandomModelShape {
  absl::string_view family = "llama";  // or "mistral", "qwen2", "qwen3", "qwen3_moe"
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  int vocab = 0;
  int context = 0;
  bool tied = false;
  DType dtype = DType::kBF16;
  // For qwen3_moe, which does not use `ffn`; 0 for the other families.
  int experts = 0;
  int experts_per_row = 0;
  int expert_ffn = 0;
  int window = 0;  // of every layer of mistral; 0 means no window

  // Parses the name of a shape, or "key=value,...", which changes `tiny` or base=NAME.
  // INVALID_ARGUMENT names the key, the value found and the values allowed.
  static absl::StatusOr<RandomModelShape> Parse(absl::string_view text);

  // The config.json of this shape, in the form of transformers 4.
  std::string ConfigJson() const;
  // The configuration that this file describes.
  ModelConfig Config() const;
  int64_t num_parameters() const;
  int64_t weight_bytes() const;
};

// A table of the named shapes, for help texts.
std::string DescribeNamedShapes();

// A tokenizer.json whose tokens 0 to 255 are the bytes, and whose token 256 is <|endoftext|>.
std::string ByteTokenizerJson();
inline constexpr int kEndOfTextId = 256;
inline constexpr int kMinRandomVocab = 257;

// Fills `out` with elements [first, first + out.size() / size of dtype) of tensor number `tensor`
// in the model of `seed`: uniform in centre +- radius, rounded to dtype. An element depends only on
// the seed, the tensor and its index. REQUIRES: `first` is a multiple of 8.
void FillRandom(uint64_t seed, uint32_t tensor, int64_t first, float centre, float radius,
                DType dtype, absl::Span<std::byte> out);

// FillRandom with the distribution for the tensor's role: matrices have mean 0 and variance
// 1 / inputs, so that activations keep their size from layer to layer; norms lie within 0.1 of 1,
// and biases within 0.1 of 0.
void FillTensor(const TensorSpec& tensor, uint64_t seed, uint32_t index, int64_t first, DType dtype,
                ThreadPool* pool, absl::Span<std::byte> out);

// Writes a Hugging Face folder: config.json, generation_config.json, tokenizer.json,
// tokenizer_config.json and model.safetensors with the weights of FillTensor. Calls `on_bytes` with
// the number of bytes of each write. ALREADY_EXISTS if the folder is not empty, RESOURCE_EXHAUSTED
// if the disk has too little free space, PERMISSION_DENIED or UNAVAILABLE if it cannot be written.
// After an error, the files written so far are removed.
absl::Status WriteRandomModel(const RandomModelShape& shape, uint64_t seed,
                              const std::string& folder, absl::FunctionRef<void(int64_t)> on_bytes);

// Makes the weights of a model of this shape in memory, for Transformer::Load. All layers share one
// set of numbers, and so do all experts, which saves memory and time. With `quantized`, matrices
// are blocks of that format, and the embedding and the head are Q8_0, the same as
// Transformer::LoadOptions::quantized makes them.
std::shared_ptr<const Weights> MakeRandomWeights(const RandomModelShape& shape, uint64_t seed,
                                                 std::optional<DType> quantized = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_RANDOM_MODEL_H_
