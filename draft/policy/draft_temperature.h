#ifndef TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_
#define TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_

#include <array>
#include <vector>

#include "draft/policy/state_archive.h"
#include "model/sampling.h"

namespace tandem {

// Learns how sharply to draw drafts. For each depth it chooses a factor that scales the draft's
// logits in addition to the request's temperature, so that the expected acceptance sum_v min(p(v),
// q(v)) is largest. Learns from the pairs of rows p, q that verification sees. Lossless with every
// factor, because q is recorded as drawn from. Thread-compatible.
class DraftTemperature {
 public:
  static constexpr int kNumDepths = 8;  // deeper tokens are drawn like the last
  static constexpr std::array<float, 9> kFactors = {0.6f,  0.7f,  0.8f, 0.9f, 1.0f,
                                                    1.12f, 1.25f, 1.4f, 1.6f};

  // Returns the factor for draft token `depth`. Constant until Update().
  float At(int depth) const;
  // Returns the depth whose rows to observe in this round, or -1. Call once per round: counts
  // calls.
  int NextDepth(int num_tokens);
  // Observes a pair of rows: the token was drawn from `draft` with the factor At(depth), and
  // `target` is the target's row for the same slot. Rows that contain NaN are ignored.
  void Observe(int depth, const Distribution& target, const Distribution& draft);
  // Chooses factors anew from the observations. Call between rounds only.
  void Update();

  void Serialize(StateArchive* archive);

  // Returns the mean acceptance that each of kFactors would have had at `depth`.
  std::array<double, kFactors.size()> Scores(int depth) const;

 private:
  using Sums = std::array<double, kFactors.size()>;
  struct Depth {
    Sums sums{};
    double count = 0.0;
  };

  std::array<Depth, kNumDepths> depths_{};
  Depth all_{};
  std::array<int, kNumDepths> chosen_ = {4, 4, 4, 4, 4, 4, 4, 4};  // indices into kFactors
  int num_observed_ = 0;
  int rounds_ = 0;
  int next_depth_ = 0;
  std::vector<float> logs_;  // [vocab]
  std::vector<float> row_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_TEMPERATURE_H_
