#ifndef TANDEM_DRAFT_MAKE_DRAFTER_H_
#define TANDEM_DRAFT_MAKE_DRAFTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "draft/drafter.h"
#include "draft/vocabulary_map.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/drafter_kind.h"

namespace tandem {

// Which tokens of a long text a draft model reads: the first kSinks, and those from a later one on.
struct DraftWindow {
  static constexpr int kSinks = 4;  // as in Xiao et al. 2023 (arXiv 2309.17453)
  static constexpr int kAutoRecent = 512;

  int recent = 0;  // the most tokens after the sinks where reading begins; 0: no window
  int most = 0;    // the most that they may become before the window moves

  // The longest texts, in tokens of each model.
  struct Contexts {
    int target = 0;
    int draft = 0;
    // The draft has a vocabulary of its own, and may need up to twice as many tokens for a text.
    bool reads_other_tokens = false;
  };
  // The window of the option `draft_window`. It fits the draft's context, which the text may
  // outgrow. None where the target's texts are no longer than the window.
  static DraftWindow Of(int draft_window, const Contexts& contexts);

  // How many tokens after the sinks are skipped in a text of `length` tokens that had
  // `begin_length` when the draft began to read it. Never falls as `length` grows. In large steps,
  // so that texts that begin alike and have about the same length share pages of the cache.
  // REQUIRES: recent > 0.
  int NumSkipped(int begin_length, int length) const;
};

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

// A model and a lookup side by side: offers what both offer, and lets the one draft whose option
// was chosen; for a sequence that is to have only one of them, it is that one. Each slot keeps its
// own kind of distribution, and the choice looks at committed tokens only, so every acceptance rule
// stays lossless.
std::unique_ptr<Drafter> CombineDrafters(std::unique_ptr<Drafter> model,
                                         std::unique_ptr<Drafter> lookup);

// Shows a drafter the window in place of the text. The shorter text is a text like any other, with
// positions from 0 on: its pages in the cache depend on its tokens alone, so they are shared
// under the usual rules, and drafts are recorded with the distributions that they were drawn from.
//
// The window moves when it has grown to DraftWindow::most, and is chosen anew where nothing is
// cached. The first DraftWindow::kSinks tokens stay cached when it moves.
// REQUIRES: window.recent > 0.
std::unique_ptr<Drafter> ShowWindow(std::unique_ptr<Drafter> inner, const DraftWindow& window);

}  // namespace tandem

#endif  // TANDEM_DRAFT_MAKE_DRAFTER_H_
