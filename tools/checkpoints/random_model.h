// Models with random weights, for benchmarks and tests without downloads.
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
#include "checkpoint/model_config.h"
#include "checkpoint/model_tensors.h"
#include "checkpoint/weights.h"
#include "kernels/matrix.h"

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
  // Of qwen3_moe, whose ffn is in no layer; of the others 0.
  int experts = 0;
  int experts_per_row = 0;
  int expert_ffn = 0;
  int window = 0;  // of every layer of mistral, 0 for none

  // The name of a shape, or "key=value,..." over `tiny` or over base=NAME.
  // INVALID_ARGUMENT naming the key, what was found and what is allowed.
  static absl::StatusOr<RandomModelShape> Parse(absl::string_view text);

  // config.json, in the form of transformers 4.
  std::string ConfigJson() const;
  // What that file means.
  ModelConfig Config() const;
  int64_t num_parameters() const;
  int64_t weight_bytes() const;
};

// A table of the named shapes, for help texts.
std::string DescribeNamedShapes();

// A tokenizer.json whose tokens 0 to 255 are the bytes, and 256 is <|endoftext|>.
std::string ByteTokenizerJson();
inline constexpr int kEndOfTextId = 256;
inline constexpr int kMinRandomVocab = 257;

// Elements [first, first + out bytes / size of dtype) of tensor number `tensor` of a seed's model:
// uniform in centre +- radius, rounded to dtype. Every element is a function of (seed, tensor, its
// index) alone. REQUIRES: `first` is a multiple of 8.
void FillRandom(uint64_t seed, uint32_t tensor, int64_t first, float centre, float radius,
                DType dtype, absl::Span<std::byte> out);

// The same of a model's tensor: matrices have mean 0 and variance 1 / inputs, so that activations
// keep their size from layer to layer; norms lie within 0.1 of 1 and biases of 0.
void FillTensor(const TensorSpec& tensor, uint64_t seed, uint32_t index, int64_t first, DType dtype,
                ThreadPool* pool, absl::Span<std::byte> out);

// Writes a Hugging Face folder: config.json, generation_config.json, tokenizer.json,
// tokenizer_config.json and model.safetensors, of FillTensor's weights.
// `on_bytes` is called as weights are written. ALREADY_EXISTS if the folder is not empty,
// RESOURCE_EXHAUSTED if the disk has too little room, PERMISSION_DENIED or UNAVAILABLE if it cannot
// be written; then what was written is removed again.
absl::Status WriteRandomModel(const RandomModelShape& shape, uint64_t seed,
                              const std::string& folder, absl::FunctionRef<void(int64_t)> on_bytes);

// The weights of a model of this shape without files, for Transformer::Load. All layers have the
// numbers of one, and so have all experts, which takes the memory and the time of one. Where
// `quantized` says so, matrices are blocks of that format, embedding and head of Q8_0, as
// Transformer::LoadOptions::quantized makes them.
std::shared_ptr<const Weights> MakeRandomWeights(const RandomModelShape& shape, uint64_t seed,
                                                 std::optional<DType> quantized = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_RANDOM_MODEL_H_
