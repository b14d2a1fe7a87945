#ifndef TANDEM_MODEL_MODEL_CONFIG_H_
#define TANDEM_MODEL_MODEL_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"
#include "kernels/matrix.h"

namespace tandem {

// How positions turn queries and keys. Formulas: Hugging Face transformers, modeling_rope_utils.
struct RopeConfig {
  enum class Type { kDefault, kLinear, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000.0;
  double factor = 1.0;            // kLinear, kLlama3
  double low_freq_factor = 1.0;   // kLlama3
  double high_freq_factor = 4.0;  // kLlama3
  int original_context = 0;       // kLlama3: original_max_position_embeddings
  // Numbers that divide the angles of all that, as GGUF files have them in place of kLlama3:
  // [head_dim / 2], or none.
  std::vector<float> divisors{};

  // The angle per position of each pair of elements: [head_dim / 2].
  std::vector<float> InverseFrequencies(int head_dim) const;
};

// What a decoder-only transformer of the Llama line is made of.
struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3"
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int context_length = 0;  // max_position_embeddings
  float rms_norm_epsilon = 0.0f;
  RopeConfig rope;
  std::vector<int> windows;  // [num_layers]: sliding window of each layer in tokens, 0 for none
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool head_norms = false;             // RmsNorm on each query and key head
  std::vector<TokenId> eos_token_ids;  // of generation_config.json, config.json or GGUF
};

// Reads a model's configuration: of a Hugging Face folder its config.json (the older forms and the
// newest) and generation_config.json, else the keys of the GGUF file that `path` means (GgufIn). A
// key that would change the result and is not implemented is an error.
// NOT_FOUND or INVALID_ARGUMENT naming the file, the key, what was found and what is allowed.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path);

// The same from the text of the two files, of which the second may be absent; the names are for
// messages.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& file,
                                             std::optional<absl::string_view> generation_text,
                                             const std::string& generation_file);

}  // namespace tandem

#endif  // TANDEM_MODEL_MODEL_CONFIG_H_
