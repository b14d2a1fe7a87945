#ifndef TANDEM_DRAFT_POLICY_DRAFT_STOP_H_
#define TANDEM_DRAFT_POLICY_DRAFT_STOP_H_

#include "draft/policy/confidence_curve.h"

namespace tandem {

// Where a draft model's draft ends early: at a row whose tokens the target would hardly keep. It
// looks at rows, never at a token drawn from the row in question, so that the output keeps its law
// (docs/verification.md). One sequence's, for one round.
struct DraftStop {
  const ConfidenceCurve* curve = nullptr;  // null: no draft ends early
  // The least chance of being kept at which a token is worth its row of the target's pass, and
  // at which a token is worth that and its step of the draft model.
  double least_for_row = 0.0;
  double least_for_step = 0.0;
};

// How the tokens of one draft have survived so far.
class DraftSurvival {
 public:
  explicit DraftSurvival(const DraftStop& stop) : stop_(stop) {}

  // Whether a token is to be drawn from a row of this confidence.
  bool Takes(float confidence) {
    if (stop_.curve == nullptr) return true;
    survival_ *= stop_.curve->Acceptance(confidence);
    return survival_ >= stop_.least_for_row;
  }
  // Whether another row is to be computed.
  bool GoesOn() const {
    return stop_.curve == nullptr ||
           survival_ * stop_.curve->MeanAcceptance() >= stop_.least_for_step;
  }

 private:
  DraftStop stop_;
  double survival_ = 1.0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_STOP_H_
