// Decides which draft tokens are kept: the acceptance rules, as functions of rows and noise.
// docs/verification.md has laws, proofs and edge cases.
#ifndef TANDEM_VERIFY_ACCEPTANCE_H_
#define TANDEM_VERIFY_ACCEPTANCE_H_

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/sampling.h"
#include "tandem/acceptance_rule.h"
#include "tandem/types.h"

namespace tandem {

// The result for one proposal: keep the first `num_accepted` tokens, then append `next`.
struct Verdict {
  int num_accepted = 0;
  TokenId next = 0;  // the target's correction, or its bonus token if everything was accepted
};

// The random numbers of one round. Slots count from 0. Every number is independent of all others
// and of those that the draft was drawn with. (Under kExactMatch it may share the draft's noise,
// because nothing depends on that.)
struct RoundNoise {
  absl::FunctionRef<float(int slot)> accept_uniform;  // in (0, 1)
  // Draws a token with probability proportional to `weights`. Returns -1 if they are all zero.
  absl::FunctionRef<TokenId(absl::Span<const float> weights, int slot)> draw_residual;
  // Draws the target's own choice at `slot`.
  absl::FunctionRef<TokenId(const Distribution& target, int slot)> draw_target;
};

// Returns the target's distribution after the first `slot` draft tokens, valid until the judgement
// ends. Called in increasing order, and not after the first rejection unless the rule must look
// there.
using TargetRows = absl::FunctionRef<absl::StatusOr<const Distribution*>(int slot)>;

// The data that a judge reads about slot i of a draft: the target's row after the first i tokens,
// the row that token i was drawn from, that token, and the round's noise. Rows may be on the host
// (HostSlots) or on a device (verify/device_slots.h).
class Slots {
 public:
  virtual ~Slots() = default;
  // Makes the target's row for `slot` available, or fails if it is invalid. Call before all other
  // functions for the slot, in increasing order.
  virtual absl::Status Reach(int slot) = 0;
  // The number of valid target rows. Meaningful after Reach has failed.
  virtual int num_reached() const = 0;
  virtual TokenId Token(int slot) = 0;
  // The target's and the draft's probability of token `slot`.
  virtual float TargetOf(int slot) = 0;
  virtual float DraftOf(int slot) = 0;
  // The sum of max(0, scale * target - draft), and a token drawn from that residual. If the
  // residual is empty due to rounding, the token is drawn from the target's row. A device has
  // results only for the scales that the request's rule uses.
  virtual double ResidualMass(int slot, double scale) = 0;
  virtual TokenId DrawResidual(int slot, double scale) = 0;
  // Draws a token from the target's row. A device has it only where the request's rule uses it: at
  // every slot under kExactMatch, after the draft's last token under the other rules.
  virtual TokenId DrawTarget(int slot) = 0;
  virtual float AcceptUniform(int slot) = 0;

  // For judges other than Judge, which compute from rows on the host: the target's and the draft's
  // row, valid as long as this object. DrawFrom draws a token in proportion to `weights` with the
  // residual's noise; -1 if they are all zero.
  virtual const Distribution& TargetRow(int slot) = 0;
  virtual const Distribution& DraftRow(int slot) = 0;
  virtual TokenId DrawFrom(absl::Span<const float> weights, int slot) = 0;
};

// Slots with rows in the host's memory. draft[i] is the distribution that tokens[i] was drawn from.
// The draft's rows may be shorter than the target's: tokens beyond their end have probability 0.
// All arguments must outlive this object.
// REQUIRES: draft.size() >= tokens.size().
class HostSlots final : public Slots {
 public:
  HostSlots(absl::Span<const TokenId> tokens, TargetRows target,
            absl::Span<const Distribution> draft, const RoundNoise& noise);

  absl::Status Reach(int slot) override;
  int num_reached() const override { return static_cast<int>(rows_.size()); }
  TokenId Token(int slot) override { return tokens_[slot]; }
  float TargetOf(int slot) override;
  float DraftOf(int slot) override;
  double ResidualMass(int slot, double scale) override;
  TokenId DrawResidual(int slot, double scale) override;
  TokenId DrawTarget(int slot) override;
  float AcceptUniform(int slot) override;
  const Distribution& TargetRow(int slot) override { return *rows_[slot]; }
  const Distribution& DraftRow(int slot) override { return draft_[slot]; }
  TokenId DrawFrom(absl::Span<const float> weights, int slot) override;

 private:
  absl::Span<const TokenId> tokens_;
  TargetRows target_;
  absl::Span<const Distribution> draft_;
  const RoundNoise& noise_;
  std::vector<const Distribution*> rows_;  // the rows reached so far
};

// Judges the first `num_tokens` tokens of a draft. Fails as Slots::Reach does. No rule keeps a
// token that has probability 0 for the target, such as an id outside its row, or asks for a row
// after one.
// REQUIRES: under kBlock and kToken each token has a positive probability in the row that it was
// drawn from, or probability 0 for the target.
absl::StatusOr<Verdict> Judge(AcceptanceRule rule, int num_tokens, Slots& slots);

// The function that decides. Production uses Judge; proofs plant mistakes here to see them caught.
using JudgeFunction = std::function<decltype(Judge)>;

}  // namespace tandem

#endif  // TANDEM_VERIFY_ACCEPTANCE_H_
