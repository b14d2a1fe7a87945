#include "draft/row_drawer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/row_math.h"

namespace tandem {
namespace {

// Writes values[i] to row[ids[i]]. All other ids up to the last of `ids` get `rest`.
void Scatter(absl::Span<const float> values, absl::Span<const TokenId> ids, float rest,
             std::vector<float>* row) {
  row->assign(ids.back() + 1, rest);
  for (size_t i = 0; i < ids.size(); ++i) (*row)[ids[i]] = values[i];
}

}  // namespace

SamplingParams OngoingDraft::SamplingFor(int slot) const {
  SamplingParams sampling = *request->sampling;
  if (request->draft_temperature != nullptr && !sampling.is_greedy()) {
    sampling.temperature /= request->draft_temperature->At(slot);
  }
  return sampling;
}

RandomPlace OngoingDraft::PlaceOf(int slot) const {
  const auto committed = static_cast<uint32_t>(request->context.size()) + request->num_skipped;
  if (request->noise == DraftNoise::kTargets) {
    return {.stream = RandomStream::kTarget, .position = committed + slot};
  }
  return {
      .stream = RandomStream::kDraft, .position = committed, .slot = static_cast<uint32_t>(slot)};
}

// Masks tokens that the target does not have before drawing, so that q is the distribution that the
// token was drawn from.
absl::Span<const float> RowDrawer::ToTargetRow(absl::Span<const float> logits) {
  if (const absl::Span<const TokenId> ids = model_->head_ids(); !ids.empty()) {
    Scatter(logits, ids, -std::numeric_limits<float>::infinity(), &draft_row_);
    logits = draft_row_;
  }
  if (vocabulary_ == nullptr) {
    return logits.first(std::min<size_t>(logits.size(), target_vocab_size_));
  }
  vocabulary_->ToTargetRow(logits, &target_row_);
  return target_row_;
}

// Works on the shorter row over the head's tokens if no parameter refers to tokens by id.
absl::Status RowDrawer::MakeDraftDistribution(absl::Span<const float> logits,
                                              const SamplingParams& sampling, TokenHistory* history,
                                              Distribution* distribution) {
  const absl::Span<const TokenId> ids = model_->head_ids();
  const bool stays_short = !ids.empty() && vocabulary_ == nullptr && sampling.takes_row() &&
                           ids.back() < target_vocab_size_;
  if (!stays_short) return MakeDistribution(ToTargetRow(logits), sampling, history, distribution);
  RETURN_IF_ERROR(MakeDistribution(logits, sampling, history, distribution));
  if (distribution->only >= 0) {
    distribution->only = ids[distribution->only];
    return absl::OkStatus();
  }
  Scatter(distribution->probs, ids, 0.0f, &draft_row_);
  distribution->probs.swap(draft_row_);
  return absl::OkStatus();
}

// Returns the softmax probability of `token`, the row's most likely token or a less likely one. NaN
// if `token` is -1, as that of a row that is not a distribution.
float RowDrawer::ConfidenceOf(absl::Span<const float> logits, TokenId token) {
  const TokenId best = ArgMax(logits);
  if (best < 0 || token < 0) return std::numeric_limits<float>::quiet_NaN();
  confidence_row_.assign(logits.begin(), logits.end());
  Softmax(/*scale=*/1.0f, logits[best], absl::MakeSpan(confidence_row_));
  return confidence_row_[token];
}

// Returns the probability of the most likely token of `distribution` in the row that it was made
// of, before a constraint removed others.
float RowDrawer::ConfidenceOfAllowed(absl::Span<const float> logits,
                                     const Distribution& distribution) {
  const TokenId best = distribution.only >= 0 ? distribution.only : ArgMax(distribution.probs);
  const absl::Span<const float> row = ToTargetRow(logits);
  return best < static_cast<TokenId>(row.size()) ? ConfidenceOf(row, best) : 0.0f;
}

bool RowDrawer::DrawNext(absl::Span<const float> logits, OngoingDraft* draft) {
  const DraftRequest& request = *draft->request;
  Proposal& proposal = *draft->proposal;
  ++proposal.num_steps;
  const int slot = draft->num_tokens();
  float confidence = ConfidenceOf(logits, ArgMax(logits));
  if (std::isnan(confidence)) {
    if (!std::exchange(has_warned_, true)) {
      Log(LogLevel::kWarning,
          "the draft's logits contain NaN or +inf, or no finite value, so it proposes nothing; its "
          "weights may be damaged");
    }
    return false;
  }
  const auto takes = [&] {
    proposal.has_stopped = !draft->survival.Takes(confidence, draft->in_one_pass && slot > 0);
    return !proposal.has_stopped;
  };
  // A mask's row does not know the tokens drawn before it, so a constraint may leave it little.
  const bool awaits_constraint =
      draft->in_one_pass && request.sampling->constraint != nullptr && request.history != nullptr;
  if (!awaits_constraint && !takes()) return false;
  Distribution* distribution = proposal.NextDistribution();
  const bool valid =
      MakeDraftDistribution(logits, draft->SamplingFor(slot), request.history, distribution).ok();
  if (!valid) return false;
  if (awaits_constraint) {
    confidence = ConfidenceOfAllowed(logits, *distribution);
    if (!takes()) return false;
  }
  const TokenId token = Draw(*distribution, request.random, draft->PlaceOf(slot));
  if (token < 0) return false;
  draft->walk.Add(token);
  proposal.tokens.push_back(token);
  proposal.confidences.push_back(confidence);
  proposal.has_stopped = draft->wants_more() && !draft->survival.GoesOn();
  return !proposal.has_stopped;
}

}  // namespace tandem
