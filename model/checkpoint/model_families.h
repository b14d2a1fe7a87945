// The table of model families, as the configuration class of the reference describes each: Hugging
// Face transformers, models/<family>/configuration_<family>.py and modeling_<family>.py. A family
// that combines existing parts is one row of the table.
#ifndef TANDEM_MODEL_CHECKPOINT_MODEL_FAMILIES_H_
#define TANDEM_MODEL_CHECKPOINT_MODEL_FAMILIES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// The norms of a layer's parts as Transformer reads them.
inline constexpr char kAttentionNorm[] = "input_layernorm";
inline constexpr char kAttentionOutputNorm[] = "attention_output_norm";
inline constexpr char kMlpNorm[] = "post_attention_layernorm";
inline constexpr char kMlpOutputNorm[] = "mlp_output_norm";
// A draft head's norms of states, in its layer or next to it, and of embeddings (kEmbeddingNorm).
inline constexpr char kStateNorm[] = "hidden_norm";
// A draft head's tensors, also in GGUF files: the norm of the states that `fc` reads; the target's
// id for each row of its head; and for each of the target's ids whether there is such a row.
inline constexpr char kStatesNorm[] = "input_norm.weight";
inline constexpr char kDraftIds[] = "d2t";
inline constexpr char kIsDrafted[] = "t2d";
inline constexpr char kEmbeddingNorm[] = "embed_norm";

// Which layers attend to a sliding window.
enum class WindowRule {
  kNone,
  kEveryLayer,   // if sliding_window is not null
  kUpperLayers,  // from max_window_layers on, or by layer_types, if use_sliding_window
  kPattern,      // all but every window_pattern-th, or by layer_types
};

// Which layers have rotary embeddings.
enum class RotationRule {
  kEveryLayer,
  kLocalWindows,  // all; layers that slide use the local rope
  kOnlyWindows,   // layers that slide
  kListedLayers,  // layers with 1 in no_rope_layers, or all but every
                  // no_rope_layer_interval-th
};

// Which layers have experts.
enum class ExpertRule {
  kNone,
  kEveryLayer,   // of intermediate_size; their weights add up to 1
  kSparseSteps,  // by decoder_sparse_step, except mlp_only_layers; of moe_intermediate_size
};

// Which elements of a head are rotated together: i and i + rotary_dim / 2, or 2 i and 2 i + 1.
enum class RotaryPairs { kHalves, kInterleaved };

// The name of a part of a layer in a checkpoint, and the name that Transformer reads
// (model_tensors.h).
struct RenamedPart {
  const char* stored;
  const char* name;
};

// A key of config.json that differs between families: it is read, is ignored (without `only`), or
// allows only one value. Keys that are read anyway are not listed.
struct FamilyKey {
  const char* key;
  const char* only = nullptr;  // as JSON
};

// The tensors that a GGUF file may hold in addition to those of every architecture, as llama.cpp
// reads it.
enum class GgufExtras {
  kNone,
  kLlamas,  // every bias; rope_freqs.weight; rope_factors_*.weight, if rope.scaling.type says so
  kRopeFactors,  // rope_factors_*.weight, whatever rope.scaling.type says
};
enum class GgufHead { kAny, kTied, kOwn };

// A family as a GGUF file: where llama.cpp, src/models/<architecture>.cpp, differs from the row of
// ModelFamily.
struct GgufForm {
  const char* architecture = nullptr;               // null: no GGUF form
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;  // order of the rows of queries and keys
  GgufExtras extras = GgufExtras::kNone;
  GgufHead head = GgufHead::kAny;
  bool joins_gate_and_up = false;  // both are in ffn_up
  bool heads_fill_rows = false;    // heads * head_dim must be hidden_size
  int window = 0;                  // if attention.sliding_window is absent; -1: required
  // A model with this number of layers scales scores by hidden / heads in place of head_dim.
  int num_layers_scaled_by_hidden = 0;
};

struct ModelFamily {
  const char* model_type;
  const char* architecture;
  // For a model with parts other than text, which are left out: the family of its text_config.
  const char* text_family = nullptr;

  // The values of absent keys; 0 if the key is required.
  struct Defaults {
    int vocab_size = 0;
    int context_length = 0;
    int num_heads = 0;
    int num_kv_heads = 0;  // 0: as many as query heads
    int head_dim = 0;      // 0: hidden_size / num_attention_heads
    int window = 0;        // 0: none
    int num_experts = 0;
    int experts_per_row = 0;
    int expert_size = 0;
    double epsilon = 1e-6;
    double theta = 10000.0;
    double attention_soft_cap = 0.0;
    double logits_soft_cap = 0.0;
    double logit_scale = 1.0;
    bool ties_embeddings = false;
  } defaults{};

  bool may_have_attention_bias = false;  // has the key attention_bias
  bool has_qkv_bias = false;             // the default of attention_bias
  bool has_output_bias = true;           // attention_bias includes the output projection
  bool may_have_mlp_bias = false;
  ModelForm form{};
  WindowRule window_rule = WindowRule::kNone;
  int window_pattern = 0;
  RotationRule rotation_rule = RotationRule::kEveryLayer;
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;
  double partial_rotary = 0.0;  // default of partial_rotary_factor; 0: whole heads are rotated

  const char* epsilon_key = "rms_norm_eps";
  float norm_offset = 0.0f;  // added to the stored weights of norms, except layer norms
  bool scales_embeddings_by_root = false;  // by the root of hidden_size

  ExpertRule expert_rule = ExpertRule::kNone;

  absl::Span<const FamilyKey> keys{};     // in addition to those of every family
  absl::Span<const RenamedPart> parts{};  // with names other than Llama's
  GgufForm gguf{};

  bool Reads(absl::string_view key) const;  // whether `keys` has it
  // Returns the rotation of a layer. `is_listed`: with kListedLayers, whether the list has it.
  LayerRotation RotationOf(bool slides, bool is_listed) const;
  // Returns a configuration with the fields of this row only.
  ModelConfig NewConfig() const;
};

absl::Span<const ModelFamily> ModelFamilies();
// These return null if there is no such family.
const ModelFamily* FamilyOfType(absl::string_view model_type);
const ModelFamily* FamilyOfArchitecture(absl::string_view architecture);
// Returns the first of several families of an architecture, preferring those with or without
// experts as `has_experts` says.
const ModelFamily* FamilyOfGguf(absl::string_view architecture, bool has_experts);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_MODEL_FAMILIES_H_
