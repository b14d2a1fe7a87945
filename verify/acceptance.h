// Which draft tokens are kept: the acceptance rules, as functions of rows and noise. Laws, proofs
// and edges: docs/verification.md.
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

// What verification makes of one proposal: keep the first `num_accepted` tokens, then `next`.
struct Verdict {
  int num_accepted = 0;
  TokenId next = 0;  // the target's correction, or its bonus token if everything was accepted
};

// The random numbers of one round. Slots count from 0; every number is independent of all others
// and of those the draft was drawn with (except under kExactMatch, where nothing depends on the
// draft's).
struct RoundNoise {
  absl::FunctionRef<float(int slot)> accept_uniform;  // in (0, 1)
  // A token with probability proportional to `weights`; -1 if they are all zero.
  absl::FunctionRef<TokenId(absl::Span<const float> weights, int slot)> draw_residual;
  // The target's own choice at `slot`.
  absl::FunctionRef<TokenId(const Distribution& target, int slot)> draw_target;
};

// The target's distribution after the first `slot` draft tokens, valid as long as the judgement.
// Asked for in increasing order, and not past the first rejection where the rule need not look
// there.
using TargetRows = absl::FunctionRef<absl::StatusOr<const Distribution*>(int slot)>;

// What judges ask about slot i of a draft: the target's row behind its first i tokens, the row that
// token i was drawn from, that token, and the round's noise. Wherever rows lie: on the host
// (HostSlots) or on a device (verify/device_slots.h).
class Slots {
 public:
  virtual ~Slots() = default;
  // Whether the target's row is there: before anything else is asked about the slot, in increasing
  // order.
  virtual absl::Status Reach(int slot) = 0;
  // Rows of the target that can be reached, once Reach has failed.
  virtual int num_reached() const = 0;
  virtual TokenId Token(int slot) = 0;
  // Probabilities of token `slot`.
  virtual float TargetOf(int slot) = 0;
  virtual float DraftOf(int slot) = 0;
  // The sum of max(0, scale * target - draft), and a token drawn from that: from the target's row
  // if it is nothing but for rounding. A device knows the scales that the request's rule asks for.
  virtual double ResidualMass(int slot, double scale) = 0;
  virtual TokenId DrawResidual(int slot, double scale) = 0;
  // From the target's row. A device knows it where the request's rule asks for it: at every slot
  // under kExactMatch, behind the draft under the others.
  virtual TokenId DrawTarget(int slot) = 0;
  virtual float AcceptUniform(int slot) = 0;

  // For judges other than Judge, which compute from rows: the target's and the draft's on the host,
  // valid as long as this, and a token drawn in proportion to `weights` with the residual's noise,
  // -1 if they are all zero.
  virtual const Distribution& TargetRow(int slot) = 0;
  virtual const Distribution& DraftRow(int slot) = 0;
  virtual TokenId DrawFrom(absl::Span<const float> weights, int slot) = 0;
};

// Rows in the host's memory, where draft[i] is the distribution that tokens[i] was drawn from. Rows
// of the draft may be shorter than the target's: what lies beyond has probability 0. All arguments
// must outlive this.
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
  std::vector<const Distribution*> rows_;  // those reached
};

// Judges the first `num_tokens` tokens of a draft. Fails as Slots::Reach does. No rule keeps a
// token to which the target gives no probability, ids outside its row among them, or asks for a row
// behind one.
// REQUIRES: under kBlock and kToken each token's own row gives it a positive probability unless the
// target gives it none.
absl::StatusOr<Verdict> Judge(AcceptanceRule rule, int num_tokens, Slots& slots);

// Who decides. Production uses Judge; proofs plant mistakes here to see them caught.
using JudgeFunction = std::function<decltype(Judge)>;

}  // namespace tandem

#endif  // TANDEM_VERIFY_ACCEPTANCE_H_
