#ifndef TANDEM_DRAFT_ROW_DRAWER_H_
#define TANDEM_DRAFT_ROW_DRAWER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/vocabulary_map.h"
#include "model/language_model.h"

namespace tandem {

// One request's draft, as its tokens are drawn.
struct OngoingDraft {
  // `granted`: the most tokens that can be drawn of those that the request grants.
  OngoingDraft(const DraftRequest* of, Proposal* into, int granted)
      : request(of), walk(of->history), proposal(into), max_tokens(granted), survival(of->stop) {}

  const DraftRequest* request;
  DraftWalk walk;  // along the proposal, as tokens are drawn on the host
  Proposal* proposal;
  int max_tokens;
  DraftSurvival survival;
  bool ended = false;

  int num_tokens() const { return static_cast<int>(proposal->tokens.size()); }
  bool wants_more() const { return !ended && num_tokens() < max_tokens; }

  // How token `slot` is to be drawn, and with which noise.
  SamplingParams SamplingAt(int slot) const;
  RandomPlace PlaceOf(int slot) const;
};

// Draws draft tokens, which are the target's, off the rows of a draft model. Its tokens may be some
// of the target's (LanguageModel::head_ids) or others (VocabularyMap). Thread-compatible.
class RowDrawer {
 public:
  // The pointers must outlive this; `vocabulary` may be null. Ids from `target_vocab_size` on are
  // never drawn.
  RowDrawer(const LanguageModel* model, int target_vocab_size, const VocabularyMap* vocabulary)
      : model_(model), target_vocab_size_(target_vocab_size), vocabulary_(vocabulary) {}

  // Adds a token drawn from this row, [head_tokens()]. False if the draft ends: the row is not a
  // distribution, its tokens would hardly be kept, or those after them.
  bool DrawNext(absl::Span<const float> logits, OngoingDraft* draft);

 private:
  // A row over the target's tokens, as far as the draft has them; valid until the next call.
  absl::Span<const float> ToTargetRow(absl::Span<const float> logits);
  // MakeDistribution of a row over the head's tokens, over the target's.
  absl::Status MakeDraftDistribution(absl::Span<const float> logits, const SamplingParams& sampling,
                                     TokenHistory* history, Distribution* distribution);
  float ConfidenceOf(absl::Span<const float> logits);

  const LanguageModel* model_;
  int target_vocab_size_;
  const VocabularyMap* vocabulary_;
  std::vector<float> draft_row_;
  std::vector<float> target_row_;
  std::vector<float> confidence_row_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_ROW_DRAWER_H_
