// Draft heads in config.json: the flat layout of the EAGLE project, SGLang and SpecForge, the
// layout of speculators, and the one-layer form (docs/drafting/draft_heads.md).
#ifndef TANDEM_MODEL_CHECKPOINT_HEAD_CONFIG_H_
#define TANDEM_MODEL_CHECKPOINT_HEAD_CONFIG_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json/config_fields.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"
#include "tandem/types.h"

namespace tandem {

// The object of a speculators file that holds the keys of the head's layer.
inline constexpr char kHeadLayerKey[] = "transformer_layer_config";

// Returns the family of the draft head that config.json describes; null for other models.
// INVALID_ARGUMENT, naming the key, for an unsupported form of head.
absl::StatusOr<const ModelFamily*> HeadFamilyOf(const ConfigFields& whole);

// Returns the keys of the head's layer: an object of its own, or `whole`. INVALID_ARGUMENT naming
// the key. REQUIRES: HeadFamilyOf(whole) is not null.
absl::StatusOr<ConfigFields> HeadLayerOf(const ConfigFields& whole);

// Completes a one-layer `model`, whose sizes and rope have been read, with the fields of a draft
// head.
absl::Status ReadHead(const ConfigFields& whole, ModelConfig* model);

// Completes a head's configuration from which tensors are present: has_own_embedding, and
// tied_embeddings if its logits are products with rows of the target's head. Leaves other models
// unchanged. REQUIRES: `weights` are arranged for this configuration (model_tensors.h).
void CompleteHead(const Weights& weights, ModelConfig* model);

// The target's tokens that the logits of a draft head cover.
struct DraftVocabulary {
  // [draft_vocab_size], ascending; empty if the head covers the whole vocabulary in order.
  std::vector<TokenId> ids;
  // [ids]: the row of each id in the stored head; empty if the rows are in the order of the ids.
  std::vector<TokenId> rows;
};

// Reads "d2t", which may be absent if the head covers the whole vocabulary, and checks that "t2d",
// if present, agrees. INVALID_ARGUMENT or NOT_FOUND, naming the tensor, unless the ids are distinct
// ids of the target. REQUIRES: `weights` are arranged for this configuration (model_tensors.h),
// that of a draft head.
absl::StatusOr<DraftVocabulary> ReadDraftVocabulary(const Weights& weights,
                                                    const ModelConfig& config);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_HEAD_CONFIG_H_
