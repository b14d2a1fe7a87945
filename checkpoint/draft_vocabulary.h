#ifndef TANDEM_CHECKPOINT_DRAFT_VOCABULARY_H_
#define TANDEM_CHECKPOINT_DRAFT_VOCABULARY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "tandem/types.h"

namespace tandem {

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
// REQUIRES: arranged weights of this configuration (arranged_weights.h), a draft head's.
absl::StatusOr<DraftVocabulary> ReadDraftVocabulary(const Weights& weights,
                                                    const ModelConfig& config);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_DRAFT_VOCABULARY_H_
