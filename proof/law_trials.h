#ifndef TANDEM_PROOF_LAW_TRIALS_H_
#define TANDEM_PROOF_LAW_TRIALS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proof/proof_world.h"
#include "proof/statistics.h"
#include "proof/target_law.h"
#include "tandem/lossless_proof.h"
#include "tandem/round_stats.h"

namespace tandem {

// What is generated again and again.
struct LawCase {
  std::vector<TokenId> prompt{};
  ProofSampling sampling{};
  AcceptanceRule rule = AcceptanceRule::kToken;
  int draft_tokens = 3;  // 0: plain decoding
  int length = 3;        // tokens to be looked at
};

// Seeded generations from one prompt, their first tokens counted in the cells of the exact law. The
// prompt is read once; each generation starts from a fork. Thread-compatible.
class LawTrials {
 public:
  // `law` is of the case's prompt, sampling and length. Generation i draws from sequence i of
  // `seeds`.
  LawTrials(const ProofWorld& world, std::shared_ptr<const TargetLaw> law, LawCase law_case,
            RandomSource seeds, int batch);

  // Makes `runs` more generations.
  absl::Status Run(int64_t runs);

  const LawCase& law_case() const { return case_; }
  int64_t runs() const { return finished_; }
  const RoundStats& stats() const { return stats_; }
  Fit fit() const { return GTest(counts_, law_->probabilities()); }

 private:
  int LengthToFork() const;
  absl::Status ReadPrompt();

  ProofRounds rounds_;
  std::shared_ptr<const TargetLaw> law_;
  LawCase case_;
  RandomSource seeds_;
  int batch_;
  KvSequence prompt_kv_;  // LengthToFork() tokens of the prompt, once they are read
  int64_t started_ = 0;
  int64_t finished_ = 0;
  std::vector<int64_t> counts_;  // [cells]
  RoundStats stats_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_LAW_TRIALS_H_
