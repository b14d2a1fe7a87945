#ifndef TANDEM_MODEL_CHECKPOINT_MODEL_CONFIG_H_
#define TANDEM_MODEL_CHECKPOINT_MODEL_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/matrix.h"
#include "model/checkpoint/rope_config.h"
#include "tandem/types.h"

namespace tandem {

inline constexpr int kMaxLayers = 10'000;
inline constexpr int kMaxHidden = 1 << 20;
inline constexpr int kMaxVocab = 1 << 24;
inline constexpr int kMaxTargetStates = 64;  // states that a draft head reads for each token
inline constexpr int kMaxExperts = 1 << 12;
inline constexpr int kMaxHeads = 1 << 14;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxContext = 1 << 30;
inline constexpr double kMinEpsilon = 1e-30;
inline constexpr double kMinMultiplier = 1e-9;
inline constexpr double kMaxMultiplier = 1e9;
inline constexpr double kMaxTheta = 1e15;
inline constexpr double kMaxRopeFactor = 1e6;

// How a row is normalised: by its root mean square; a layer norm subtracts the mean first.
enum class NormForm { kRms, kLayer };
// What queries and keys are normalised over before their rotation.
enum class QueryKeyNorm { kNone, kEachHead, kAllHeads };
// The rotary embeddings of a layer: ModelConfig::rope, ModelConfig::local_rope, or none.
enum class LayerRotation { kMain, kLocal, kNone };
inline constexpr int kNumLayerRotations = 3;

// How a draft head reads the target's states in addition to tokens (docs/drafting/draft_heads.md).
enum class StateInput {
  kNone,
  kNextToEmbedding,  // EAGLE-3: queries, keys and values are of concat(norm(embedding),
                     // norm(state))
  kFused,            // EAGLE, MTP: rows are fc(concat(norm(embedding), norm(state)))
};

// What all models of a family have in common (model_families.cc).
struct ModelForm {
  // A layer adds the output of attention, then that of a feed-forward, to the rows. Their inputs
  // and their outputs may be normalised. Parallel ones share one norm and one input.
  NormForm norm_form = NormForm::kRms;
  bool normalizes_inputs = true;
  bool normalizes_outputs = false;
  bool is_parallel = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  Activation activation = Activation::kSilu;
  StateInput state_input = StateInput::kNone;  // for draft heads (head_config.h)

  bool operator==(const ModelForm&) const = default;

  bool is_draft_head() const { return state_input != StateInput::kNone; }
};

// The configuration of a decoder-only transformer.
struct ModelConfig : ModelForm {
  std::string family;            // model_type of config.json, or of its text part
  bool has_other_parts = false;  // parts other than text, whose tensors are left out
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int context_length = 0;

  float rms_norm_epsilon = 0.0f;  // of both norm forms
  bool qkv_bias = false;
  bool output_bias = false;  // bias of the attention's output projection
  std::vector<int> windows;  // [num_layers]: sliding window of each layer in tokens, 0 for none
  float attention_scale = 0.0f;
  float attention_soft_cap = 0.0f;  // 0: none

  RopeConfig rope;
  RopeConfig local_rope;
  std::vector<LayerRotation> rotations;  // [num_layers]
  int rotary_dim = 0;                    // elements of a head that are rotated

  bool mlp_bias = false;
  // Layers whose feed-forward is a weighted sum of some experts, chosen by the softmax of a
  // router's logits.
  std::vector<bool> expert_layers;  // [num_layers]
  int num_experts = 0;              // 0: no layer has experts
  int experts_per_row = 0;
  int expert_size = 0;  // intermediate_size of an expert
  bool renormalises_experts = false;

  // Multipliers of rows, scores and logits, and their soft caps.
  float embedding_scale = 1.0f;  // of the embeddings
  float residual_scale = 1.0f;   // of the outputs that layers add
  float logits_scale = 1.0f;
  float logits_soft_cap = 0.0f;  // applied after logits_scale; 0: none
  bool tied_embeddings = false;
  std::vector<TokenId> eos_token_ids;  // from generation_config.json, config.json or GGUF
  bool has_ends_by_name = false;       // eos_token_ids has the ends by name (end_tokens.h)
  // For a draft model that was trained to propose several tokens in one pass
  // (docs/drafting/parallel_drafts.md): the id of every row after the first. Means nothing for a
  // target.
  TokenId mask_token = kNoMaskToken;

  // Only for a draft head, which is a model of one layer. Its logits are over some of the target's
  // tokens.
  int target_hidden_size = 0;
  // The target's layers whose inputs the head reads, in this order; the number of layers of the
  // target stands for its last state after the final norm. Empty until loaded next to the target if
  // the files name none.
  std::vector<int> target_layers;
  int num_states = 0;              // number of target layers that are read
  bool norms_states = false;       // norm_before_fc: normalises the states before `fc`
  bool norms_residual = false;     // norm_before_residual
  bool has_own_embedding = false;  // false: uses the target's
  int draft_vocab_size = 0;        // rows of the head

  // The number of floats of the target that the head reads for a token, and the number of inputs of
  // `fc`.
  int read_state_size() const { return num_states * target_hidden_size; }
  int fc_inputs() const {
    return state_input == StateInput::kFused ? 2 * hidden_size : read_state_size();
  }
  // The number of inputs of the projections to queries, keys and values.
  int attention_inputs() const {
    return state_input == StateInput::kNextToEmbedding ? 2 * hidden_size : hidden_size;
  }

  struct IgnoredKey {
    std::string key;
    const char* why;
    bool operator==(const IgnoredKey&) const = default;
  };
  std::vector<IgnoredKey> ignored_keys;  // of config.json

  bool has_experts(int layer) const { return num_experts > 0 && expert_layers[layer]; }

  bool operator==(const ModelConfig&) const = default;

  // The number of cache variants, which hold different values for the same text:
  // LanguageModel::cache_variant.
  int num_cache_variants() const { return rope.type == RopeConfig::Type::kLongRope ? 2 : 1; }
};

// Reads a model's configuration. For a Hugging Face folder it is config.json (in the older forms
// and the newest) and generation_config.json; otherwise it is the keys of the GGUF file that `path`
// means (GgufIn). An unknown key that might change the result is an error unless it is in
// `allowed_keys`, which are names as in that error ("text_config.KEY") or the last part of such
// names. Returns NOT_FOUND or INVALID_ARGUMENT, naming the file, the key, the value found and the
// values allowed.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path,
                                            absl::Span<const std::string> allowed_keys = {});

// The same from the texts of the two files, of which the second may be absent; the names are for
// messages.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& file,
                                             std::optional<absl::string_view> generation_text,
                                             const std::string& generation_file,
                                             absl::Span<const std::string> allowed_keys = {});

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_MODEL_CONFIG_H_
