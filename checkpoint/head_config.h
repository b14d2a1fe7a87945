// Draft heads in config.json: the flat layout of the EAGLE project, SGLang and SpecForge, that of
// speculators, and the one-layer form (docs/draft_heads.md).
#ifndef TANDEM_CHECKPOINT_HEAD_CONFIG_H_
#define TANDEM_CHECKPOINT_HEAD_CONFIG_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"
#include "checkpoint/weights.h"
#include "json/config_fields.h"
#include "tandem/types.h"

namespace tandem {

// The object of a speculators file that has the keys of the head's layer.
inline constexpr char kHeadLayerKey[] = "transformer_layer_config";

// The family of the draft head that config.json describes; null for another model.
// INVALID_ARGUMENT naming the key for a head of a form that is not read.
absl::StatusOr<const ModelFamily*> HeadFamilyOf(const ConfigFields& whole);

// The keys of the head's layer: an object of its own, or `whole`. INVALID_ARGUMENT naming the key.
// REQUIRES: HeadFamilyOf(whole).
absl::StatusOr<ConfigFields> HeadLayerOf(const ConfigFields& whole);

// Reads what makes a head of a one-layer model whose sizes and rope `model` has already.
absl::Status ReadHead(const ConfigFields& whole, ModelConfig* model);

// Completes a head's configuration by which tensors there are: has_own_embedding, and
// tied_embeddings where its logits are products with rows of the target's head. Other models'
// stays. REQUIRES: arranged weights of this configuration (model_tensors.h).
void CompleteHead(const Weights& weights, ModelConfig* model);

// Which of the target's tokens the logits of a draft head are over.
struct DraftVocabulary {
  // [draft_vocab_size], ascending; empty where they are the target's, all of them.
  std::vector<TokenId> ids;
  // [ids]: the row that each has in the stored head; empty where that is in the ids' order.
  std::vector<TokenId> rows;
};

// Reads "d2t", which may be absent where the head is over the whole vocabulary, and looks whether
// "t2d", which may be absent in any case, says the same. INVALID_ARGUMENT or NOT_FOUND naming the
// tensor if ids are not distinct ones of the target's.
// REQUIRES: arranged weights of this configuration (model_tensors.h), a draft head's.
absl::StatusOr<DraftVocabulary> ReadDraftVocabulary(const Weights& weights,
                                                    const ModelConfig& config);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_HEAD_CONFIG_H_
