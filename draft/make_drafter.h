#ifndef TANDEM_DRAFT_MAKE_DRAFTER_H_
#define TANDEM_DRAFT_MAKE_DRAFTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "draft/drafter.h"
#include "draft/vocabulary_map.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/drafter_kind.h"
#include "tandem/types.h"

namespace tandem {

// Selects the tokens of a long text that a draft model reads: the first kSinks, and all from a
// later position on.
struct DraftWindow {
  static constexpr int kSinks = 4;  // as in Xiao et al. 2023 (arXiv 2309.17453)
  static constexpr int kAutoRecent = 512;

  int recent = 0;  // maximum number of tokens after the sinks at first; 0: no window
  int most = 0;    // number of tokens after the sinks at which the window moves

  // The context lengths, in tokens of each model.
  struct Contexts {
    int target = 0;
    int draft = 0;
    // The draft has its own vocabulary, and may need up to twice as many tokens for a text.
    bool reads_other_tokens = false;
  };
  // Returns the window for the option `draft_window`. It fits the draft's context, even if the text
  // does not. Returns no window (recent = 0) if the target's context is not longer than the window.
  static DraftWindow Of(int draft_window, const Contexts& contexts);

  // Returns how many tokens after the sinks are skipped in a text of `length` tokens, which had
  // `begin_length` tokens when the draft began to read it. Never falls as `length` grows. Changes
  // in large steps, so that texts with a common prefix and similar lengths share pages of the
  // cache.
  // REQUIRES: recent > 0.
  int NumSkipped(int begin_length, int length) const;
};

// Returns the form of a draft; kNone if `draft` is null.
inline DraftForm FormOf(const LanguageModel* draft) {
  if (draft == nullptr) return DraftForm::kNone;
  return draft->read_state_size() > 0 ? DraftForm::kHead : DraftForm::kModel;
}

// The parts from which drafters are made.
struct DrafterParts {
  LanguageModel* model = nullptr;  // the draft model or head, or null
  PagedKvCache* cache = nullptr;   // its cache; for a head, the target's
  // For a head: the model whose states it reads, and the backend of both.
  const LanguageModel* target = nullptr;
  Backend* backend = nullptr;
  int target_vocab_size = 0;
  int chunk_tokens = 256;
  // For a draft model with another vocabulary; must outlive the drafter.
  const VocabularyMap* vocabulary = nullptr;
  DraftWindow window{};               // the part of long texts that the draft model reads
  TokenId mask_token = kNoMaskToken;  // of a draft model that drafts in one pass

  DraftForm form() const { return FormOf(model); }
};

// Makes a drafter; null for kNone. INVALID_ARGUMENT if `kind` needs a draft model or a head and
// `parts` does not have one.
absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(DrafterKind kind, const DrafterParts& parts);

// Makes a drafter whose sequences may each use another kind (Drafter::NewStateOf): `usual` or any
// other that the parts allow. INVALID_ARGUMENT if the parts do not allow `usual`.
absl::StatusOr<std::unique_ptr<Drafter>> MakeEveryDrafter(DrafterKind usual,
                                                          const DrafterParts& parts);

// Combines a model and a lookup. Offers the options of both; the drafter of the chosen option makes
// the draft. A sequence whose DrafterKind names only one of them uses only that one. Each slot
// keeps its own kind of distribution, and the choice depends on committed tokens only, so every
// acceptance rule stays lossless.
std::unique_ptr<Drafter> CombineDrafters(std::unique_ptr<Drafter> model,
                                         std::unique_ptr<Drafter> lookup);

// Wraps a drafter so that it sees a window in place of the text. The shorter text is a text like
// any other, with positions from 0 on. Its pages in the cache depend only on its tokens, so they
// are shared under the usual rules, and drafts are recorded with the distributions that they were
// drawn from.
//
// The window moves when it has grown to DraftWindow::most, and starts again where the draft's cache
// is empty. The first DraftWindow::kSinks tokens stay cached when it moves.
// REQUIRES: window.recent > 0.
std::unique_ptr<Drafter> ShowWindow(std::unique_ptr<Drafter> inner, const DraftWindow& window);

}  // namespace tandem

#endif  // TANDEM_DRAFT_MAKE_DRAFTER_H_
