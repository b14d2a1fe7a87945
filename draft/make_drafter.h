#ifndef TANDEM_DRAFT_MAKE_DRAFTER_H_
#define TANDEM_DRAFT_MAKE_DRAFTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "draft/drafter.h"
#include "draft/vocabulary_map.h"
#include "draft/windowed_drafter.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/drafter_kind.h"

namespace tandem {

// The form of a draft; kNone without one.
inline DraftForm FormOf(const LanguageModel* draft) {
  if (draft == nullptr) return DraftForm::kNone;
  return draft->read_state_size() > 0 ? DraftForm::kHead : DraftForm::kModel;
}

// What drafters are made of.
struct DrafterParts {
  LanguageModel* model = nullptr;  // the draft model or head, or null
  PagedKvCache* cache = nullptr;   // its cache; of a head the target's
  // For a head: the model whose states it reads, and the backend of both.
  const LanguageModel* target = nullptr;
  Backend* backend = nullptr;
  int target_vocab_size = 0;
  int chunk_tokens = 256;
  const VocabularyMap* vocabulary = nullptr;  // of a draft model with other tokens; outlives it
  DraftWindow window{};                       // what the draft model reads of long texts

  DraftForm form() const { return FormOf(model); }
};

// Null for kNone. INVALID_ARGUMENT for a drafter with a model, or a head, where there is none.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(DrafterKind kind, const DrafterParts& parts);

// One whose sequences may each have another drafter (Drafter::NewStateOf): `usual` or any other
// that the parts allow. INVALID_ARGUMENT if `usual` is not one of these.
absl::StatusOr<std::unique_ptr<Drafter>> MakeEveryDrafter(DrafterKind usual,
                                                          const DrafterParts& parts);

}  // namespace tandem

#endif  // TANDEM_DRAFT_MAKE_DRAFTER_H_
