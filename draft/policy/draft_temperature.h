#ifndef TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_
#define TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_

#include <array>
#include <vector>

#include "draft/policy/state_archive.h"
#include "model/sampling.h"

namespace tandem {

// How sharply a draft should be drawn: by which factor, at each depth, its logits are to be
// stretched beyond what the request's temperature does, so that the expected acceptance
// sum_v min(p(v), q(v)) is largest. Learned from pairs of rows p, q that verification sees;
// lossless whatever it says, because q is recorded as drawn from. Thread-compatible.
class DraftTemperature {
 public:
  static constexpr int kNumDepths = 8;  // deeper tokens are drawn like the last
  static constexpr std::array<float, 9> kFactors = {0.6f,  0.7f,  0.8f, 0.9f, 1.0f,
                                                    1.12f, 1.25f, 1.4f, 1.6f};

  // The factor for draft token `depth`. Constant until Update().
  float At(int depth) const;
  // The depth whose rows are to be looked at in this round, or -1. Counts rounds.
  int NextDepth(int num_tokens);
  // `draft` was drawn from with the factor At(depth), where `target` would have chosen from. Rows
  // with what is no number tell nothing.
  void Observe(int depth, const Distribution& target, const Distribution& draft);
  // Takes in what was observed. Between rounds only.
  void Update();

  void Serialize(StateArchive* archive);

  // The mean acceptance that each of kFactors would have had at `depth`.
  std::array<double, kFactors.size()> Scores(int depth) const;

 private:
  using Sums = std::array<double, kFactors.size()>;
  struct Depth {
    Sums sums{};
    double count = 0.0;
  };

  std::array<Depth, kNumDepths> depths_{};
  Depth all_{};
  std::array<int, kNumDepths> chosen_ = {4, 4, 4, 4, 4, 4, 4, 4};  // of kFactors: 1
  int num_observed_ = 0;
  int rounds_ = 0;
  int next_depth_ = 0;
  std::vector<float> logs_;  // [vocab]
  std::vector<float> row_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_
