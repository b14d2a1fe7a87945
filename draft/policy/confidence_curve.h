#ifndef TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
#define TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_

#include <array>

#include "draft/policy/state_archive.h"

namespace tandem {

// How many draft tokens were tested and kept, with exponential forgetting: each test multiplies the
// weight of those before it by `memory`, the same in all calls.
struct KeptCounts {
  double tested = 0.0;
  double accepted = 0.0;

  void Observe(double memory, bool is_accepted) {
    tested = memory * tested + 1.0;
    accepted = memory * accepted + (is_accepted ? 1.0 : 0.0);
  }
  // The share that was kept, with `prior` believed as if so many tests had shown it.
  double Rate(double prior, double prior_tests) const {
    return (accepted + prior_tests * prior) / (tested + prior_tests);
  }
  void Serialize(double memory, StateArchive* archive) {
    archive->Pass(0.0, 1.0 / (1.0 - memory), &tested);
    archive->Pass(0.0, tested, &accepted);
  }
};

// How often the target keeps a draft model's token, by the confidence of the draft's row: the
// softmax probability of its most likely token. Learned with exponential forgetting; before
// anything was seen, a token is kept as often as the confidence says. Thread-compatible.
class ConfidenceCurve {
 public:
  // A token drawn from a row of this confidence, in [0, 1], was tested: those before it were kept.
  void Observe(float confidence, bool is_accepted);
  // The chance that such a token is kept once those before it were.
  double Acceptance(float confidence) const;
  // The same of a token whose row is not known yet.
  double MeanAcceptance() const;

  void Serialize(StateArchive* archive);

 private:
  // Where the next bucket begins.
  static constexpr std::array<float, 11> kEdges = {0.1f, 0.2f, 0.3f, 0.4f,  0.5f, 0.6f,
                                                   0.7f, 0.8f, 0.9f, 0.95f, 0.98f};
  static size_t BucketOf(float confidence);

  std::array<KeptCounts, kEdges.size() + 1> buckets_{};
  KeptCounts all_{};
};

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

#endif  // TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
