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

// Returns the probability of the row's most likely token, or NaN if the row is not a distribution.
float RowDrawer::ConfidenceOf(absl::Span<const float> logits) {
  const TokenId best = ArgMax(logits);
  if (best < 0) return std::numeric_limits<float>::quiet_NaN();
  confidence_row_.assign(logits.begin(), logits.end());
  Softmax(/*scale=*/1.0f, logits[best], absl::MakeSpan(confidence_row_));
  return confidence_row_[best];
}

bool RowDrawer::DrawNext(absl::Span<const float> logits, OngoingDraft* draft) {
  const DraftRequest& request = *draft->request;
  Proposal& proposal = *draft->proposal;
  ++proposal.num_steps;
  const float confidence = ConfidenceOf(logits);
  if (std::isnan(confidence)) {
    if (!std::exchange(has_warned_, true)) {
      Log(LogLevel::kWarning,
          "the draft's logits contain NaN or +inf, or no finite value, so it proposes nothing; its "
          "weights may be damaged");
    }
    return false;
  }
  proposal.has_stopped = !draft->survival.Takes(confidence);
  if (proposal.has_stopped) return false;
  Distribution* distribution = proposal.NextDistribution();
  const bool valid = MakeDraftDistribution(logits, draft->SamplingFor(draft->num_tokens()),
                                           request.history, distribution)
                         .ok();
  if (!valid) return false;
  const TokenId token = Draw(*distribution, request.random, draft->PlaceOf(draft->num_tokens()));
  if (token < 0) return false;
  draft->walk.Add(token);
  proposal.tokens.push_back(token);
  proposal.confidences.push_back(confidence);
  proposal.has_stopped = draft->wants_more() && !draft->survival.GoesOn();
  return !proposal.has_stopped;
}

}  // namespace tandem
