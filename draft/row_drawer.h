#ifndef TANDEM_DRAFT_ROW_DRAWER_H_
#define TANDEM_DRAFT_ROW_DRAWER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/vocabulary_map.h"
#include "model/language_model.h"

namespace tandem {

// One request's draft while its tokens are drawn.
struct OngoingDraft {
  // `granted`: the maximum number of tokens to draw, not more than the request grants.
  OngoingDraft(const DraftRequest* of, Proposal* into, int granted)
      : request(of), walk(of->history), proposal(into), max_tokens(granted), survival(of->stop) {}

  const DraftRequest* request;
  DraftWalk walk;  // adds the proposed tokens to the history, when they are drawn on the host
  Proposal* proposal;
  int max_tokens;
  DraftSurvival survival;
  bool ended = false;
  bool in_one_pass = false;  // all rows but the first are those of masks

  int num_tokens() const { return static_cast<int>(proposal->tokens.size()); }
  bool wants_more() const { return !ended && num_tokens() < max_tokens; }

  // The sampling parameters and the place of the noise for token `slot`.
  SamplingParams SamplingFor(int slot) const;
  RandomPlace PlaceOf(int slot) const;
};

// Draws draft tokens from the rows of a draft model. The tokens drawn are always the target's. The
// model's rows may cover a part of the target's vocabulary (LanguageModel::head_ids) or another
// vocabulary (VocabularyMap). Thread-compatible.
class RowDrawer {
 public:
  // The pointers must outlive this object; `vocabulary` may be null. Ids from `target_vocab_size`
  // on are never drawn.
  RowDrawer(const LanguageModel* model, int target_vocab_size, const VocabularyMap* vocabulary)
      : model_(model), target_vocab_size_(target_vocab_size), vocabulary_(vocabulary) {}

  // Draws a token from this row, [head_tokens()], and appends it. Returns false if the draft ends,
  // because the row is not a distribution, or because its token or the next one is unlikely to be
  // kept.
  bool DrawNext(absl::Span<const float> logits, OngoingDraft* draft);

 private:
  // Converts a row of the draft model to one over target ids. Tokens that the draft lacks are at
  // -infinity or after the end of the row. Valid until the next call.
  absl::Span<const float> ToTargetRow(absl::Span<const float> logits);
  // Like MakeDistribution: from a row over the head's tokens to a distribution over target ids.
  absl::Status MakeDraftDistribution(absl::Span<const float> logits, const SamplingParams& sampling,
                                     TokenHistory* history, Distribution* distribution);
  float ConfidenceOf(absl::Span<const float> logits, TokenId token);
  float ConfidenceOfAllowed(absl::Span<const float> logits, const Distribution& distribution);

  const LanguageModel* model_;
  int target_vocab_size_;
  const VocabularyMap* vocabulary_;
  bool has_warned_ = false;  // of rows that are not distributions
  std::vector<float> draft_row_;
  std::vector<float> target_row_;
  std::vector<float> confidence_row_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_ROW_DRAWER_H_
