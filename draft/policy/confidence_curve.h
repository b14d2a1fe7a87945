#ifndef TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
#define TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_

#include <array>

#include "draft/policy/state_archive.h"

namespace tandem {

// Counts how many draft tokens were tested and kept, with exponential forgetting: each test
// multiplies the weight of those before it by `memory`, which must be the same in all calls.
struct KeptCounts {
  double tested = 0.0;
  double accepted = 0.0;

  void Observe(double memory, bool is_accepted) {
    tested = memory * tested + 1.0;
    accepted = memory * accepted + (is_accepted ? 1.0 : 0.0);
  }
  // Returns the share that was kept, with a `prior` that has the weight of `prior_tests` tests.
  double Rate(double prior, double prior_tests) const {
    return (accepted + prior_tests * prior) / (tested + prior_tests);
  }
  void Serialize(double memory, StateArchive* archive) {
    archive->Pass(0.0, 1.0 / (1.0 - memory), &tested);
    archive->Pass(0.0, tested, &accepted);
  }
};

// Learns how often the target keeps a draft model's token, by the confidence of the draft's row:
// the softmax probability of its most likely token. Forgets exponentially. Before any observation
// the chance of being kept is the confidence itself. Thread-compatible.
//
// Rows of masks (`is_mask`) have counts of their own: such a row does not know the tokens before
// it, so its confidence is lower than the chance of being kept once they were.
class ConfidenceCurve {
 public:
  // Records a test of a token drawn from a row of this confidence, in [0, 1]. A token is tested if
  // those before it were kept.
  void Observe(float confidence, bool is_accepted, bool is_mask = false);
  // Returns the chance that such a token is kept if those before it were.
  double Acceptance(float confidence, bool is_mask = false) const;
  // The same for a token whose row is not known yet.
  double MeanAcceptance() const;

  void Serialize(StateArchive* archive);

 private:
  // The lower edges of all buckets but the first.
  static constexpr std::array<float, 11> kEdges = {0.1f, 0.2f, 0.3f, 0.4f,  0.5f, 0.6f,
                                                   0.7f, 0.8f, 0.9f, 0.95f, 0.98f};
  static size_t BucketOf(float confidence);

  using Buckets = std::array<KeptCounts, kEdges.size() + 1>;
  Buckets of_tokens_{}, of_masks_{};
  KeptCounts all_{};  // of both
};

// Decides where a draft model ends a draft early: at a row whose tokens the target is unlikely to
// keep. It depends on rows, never on a token drawn from the row in question, so the output keeps
// its law (docs/verification.md). Holds for one sequence and one round.
struct DraftStop {
  const ConfidenceCurve* curve = nullptr;  // null: no draft ends early
  // The minimum chance of being kept at which a token is worth its row in the target's pass, and at
  // which it is worth both the row and its step of the draft model.
  double min_for_row = 0.0;
  double min_for_step = 0.0;
};

// Tracks the chance that all tokens of one draft so far are kept.
class DraftSurvival {
 public:
  explicit DraftSurvival(const DraftStop& stop) : stop_(stop) {}

  // Whether to draw a token from a row of this confidence.
  bool Takes(float confidence, bool is_mask = false) {
    if (stop_.curve == nullptr) return true;
    survival_ *= stop_.curve->Acceptance(confidence, is_mask);
    return survival_ >= stop_.min_for_row;
  }
  // Whether to compute another row.
  bool GoesOn() const {
    return stop_.curve == nullptr ||
           survival_ * stop_.curve->MeanAcceptance() >= stop_.min_for_step;
  }

 private:
  DraftStop stop_;
  double survival_ = 1.0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
