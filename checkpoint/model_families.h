// What each family of models is made of, as the configuration class of the reference says it:
// Hugging Face transformers, models/<family>/configuration_<family>.py and modeling_<family>.py.
// A family that combines parts that there are is a row of the table.
#ifndef TANDEM_CHECKPOINT_MODEL_FAMILIES_H_
#define TANDEM_CHECKPOINT_MODEL_FAMILIES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/model_config.h"

namespace tandem {

// The norms of a layer's parts as Transformer reads them.
inline constexpr char kAttentionNorm[] = "input_layernorm";
inline constexpr char kAttentionOutputNorm[] = "attention_output_norm";
inline constexpr char kMlpNorm[] = "post_attention_layernorm";
inline constexpr char kMlpOutputNorm[] = "mlp_output_norm";
// A draft head's norms of states, in its layer or next to it, and of embeddings.
inline constexpr char kStateNorm[] = "hidden_norm";
// A draft head's tensors, also in GGUF files: the norm of the states that `fc` reads; for each row
// of its head the target's id; and for each of the target's ids whether there is such a row.
inline constexpr char kStatesNorm[] = "input_norm.weight";
inline constexpr char kDraftIds[] = "d2t";
inline constexpr char kIsDrafted[] = "t2d";
inline constexpr char kEmbeddingNorm[] = "embed_norm";

// Which layers attend to a sliding window.
enum class WindowRule {
  kNone,
  kEveryLayer,   // if sliding_window is not null
  kUpperLayers,  // from max_window_layers on, or by layer_types, if use_sliding_window
  kPattern,      // all but each window_pattern-th, or by layer_types
};

// Which layers have rotary embeddings.
enum class RotationRule {
  kEveryLayer,
  kLocalWindows,  // every one; those that slide by the local rope
  kOnlyWindows,   // those that slide
  kListedLayers,  // as no_rope_layers says (1: they have), or all but each
                  // no_rope_layer_interval-th
};

// Which layers have experts.
enum class ExpertRule {
  kNone,
  kEveryLayer,   // of the size of other feed-forwards, whose weights add up to 1
  kSparseSteps,  // by decoder_sparse_step, but mlp_only_layers; of moe_intermediate_size
};

// Which elements of a head are rotated together: i and i + rotary_dim / 2, or 2 i and 2 i + 1.
enum class RotaryPairs { kHalves, kNeighbours };

// A part of a layer under its name in a checkpoint, and under the one that Transformer reads
// (model_tensors.h).
struct RenamedPart {
  const char* stored;
  const char* name;
};

// A key of config.json that makes a difference between families: one that is read, or need not be
// (no `only`), or one of which only one value is right. Keys that are read anyway are not listed.
struct FamilyKey {
  const char* key;
  const char* only = nullptr;  // as JSON
};

// What a GGUF file may hold beside the tensors that every architecture has, as llama.cpp reads it.
enum class GgufExtras {
  kNone,
  kLlamas,  // every bias; rope_freqs.weight; rope_factors_*.weight, if rope.scaling.type says so
  kRopeFactors,  // these whatever it says
};
enum class GgufHead { kAny, kTied, kOwn };

// A family as a GGUF file: what llama.cpp, src/models/<architecture>.cpp, does otherwise than the
// rows of ModelFamily say.
struct GgufForm {
  const char* architecture = nullptr;               // null: none
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;  // of queries' and keys' rows in the file
  GgufExtras extras = GgufExtras::kNone;
  GgufHead head = GgufHead::kAny;
  bool joins_gate_and_up = false;  // in ffn_up
  bool heads_fill_rows = false;    // heads * head_dim must be hidden
  int window = 0;                  // where attention.sliding_window is absent; -1: it must be there
  // Of a model of so many layers scores are scaled by hidden / heads in place of head_dim.
  int layers_of_other_scale = 0;
};

struct ModelFamily {
  const char* model_type;
  const char* architecture;
  // A model with other parts than text, which are left out: the family of its text_config.
  const char* text_family = nullptr;

  // What absent keys mean; 0 for those that must be there.
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

  bool may_have_attention_bias = false;  // by the key attention_bias
  bool has_qkv_bias = false;             // where that key is absent
  bool has_output_bias = true;           // where queries have one by that key
  bool may_have_mlp_bias = false;
  ModelForm form{};
  WindowRule window_rule = WindowRule::kNone;
  int window_pattern = 0;
  RotationRule rotation_rule = RotationRule::kEveryLayer;
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;
  double partial_rotary = 0.0;  // the default of partial_rotary_factor; 0: all of a head is rotated

  const char* epsilon_key = "rms_norm_eps";
  float norm_offset = 0.0f;  // that weights of norms, but a layer norm's, are stored without
  bool scales_embeddings_by_root = false;  // of hidden_size

  ExpertRule expert_rule = ExpertRule::kNone;

  absl::Span<const FamilyKey> keys{};     // beside those of every family
  absl::Span<const RenamedPart> parts{};  // that have other names than Llama's
  GgufForm gguf{};

  bool Reads(absl::string_view key) const;  // among its own
  // A configuration that has what the row says, and nothing else.
  ModelConfig NewConfig() const;
};

absl::Span<const ModelFamily> ModelFamilies();
// Null if there is none.
const ModelFamily* FamilyOfType(absl::string_view model_type);
const ModelFamily* FamilyOfArchitecture(absl::string_view architecture);
// The first of several; of families with and without experts one of those that are meant.
const ModelFamily* FamilyOfGguf(absl::string_view architecture, bool has_experts);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_MODEL_FAMILIES_H_
