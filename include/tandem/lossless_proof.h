// Proves for a pair of models on this machine that speculation does not change the output. It
// checks exact equality where that must hold, tests the distribution where only that can be equal,
// and plants faults that the same checks must detect (docs/proof.md).
//
//   absl::StatusOr<tandem::LosslessProof> proof = tandem::ProveLossless(
//       {.target = "models/storyteller-7m", .draft = "models/storyteller-1m"},
//       {.prompts = {"Once upon a time there was a king."}});
//   if (proof.ok() && proof->verdict == tandem::ProofVerdict::kLossless) ...
#ifndef TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_
#define TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/engine.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

struct ProofOptions {
  std::vector<std::string> prompts{};              // as text, and
  std::vector<std::vector<TokenId>> prompt_ids{};  // as ids
  int draft_tokens = 4;                            // k, from 1
  absl::Duration time = absl::Seconds(75);         // target duration; some runs are always made
  int64_t runs = 0;          // per test of a law; 0: as many as the time allows
  uint64_t seed = 1;         // for all random numbers
  std::string plant{};       // a fault to plant in the code under test; empty for none
  double error_rate = 1e-4;  // chance of a wrong "broken", over all tests of laws together
  // Called from time to time with the completed share, in [0, 1].
  std::function<void(double share)> on_progress{};

  // INVALID_ARGUMENT naming the field, the value found and the values allowed.
  absl::Status Validate() const;
};

// Sampling parameters with a short name.
struct ProofSampling {
  std::string name{};
  SamplingParams params;
};

// A check for bit-exact equality.
struct ExactCheck {
  std::string name{};
  std::string what{};  // the values compared, and the method
  int64_t compared = 0;
  int64_t different = 0;
  std::string first_difference{};  // position of the first difference, if any
};

// A statistical test of whether generations follow the target's exact distribution.
struct LawCheck {
  std::string rule{};  // an acceptance rule, or "plain" without a draft
  std::string sampling{};
  int prompt_tokens = 0;
  int draft_tokens = 0;
  int length = 0;           // tokens of each generation that are tested
  bool models_ran = false;  // in every round; else rows were computed once and looked up
  int64_t runs = 0;
  double accepted = 0.0;   // share of the draft tokens
  double statistic = 0.0;  // G
  int degrees = 0;
  double p_value = 1.0;
  double adjusted_p = 1.0;      // adjusted for all tests of laws together (Holm)
  double seen_variation = 1.0;  // smallest total variation that is detected in 99 of 100 cases
};

// The result of a planted fault.
struct FaultCheck {
  std::string fault{};
  std::string what{};
  std::string rule{};     // empty if the fault does not concern a law
  std::string seen_by{};  // "law", "output", "draft"
  bool applies = true;    // to this drafter
  bool caught = false;
  int64_t runs = 0;  // runs of the test of the law
  std::string sampling{};
  int draft_tokens = 0;
  int length = 0;
  double statistic = 0.0;
  int degrees = 0;
  double p_value = 1.0;
  int64_t compared = 0;  // items compared by the exact check
  int64_t different = 0;
};

enum class ProofVerdict {
  kLossless,    // everything equal, no law broken, every fault caught
  kBroken,      // an exact check differs, or a law is broken
  kIncomplete,  // no difference was found, but a fault was missed or nothing was drafted
};
std::string_view NameOf(ProofVerdict verdict);

struct LosslessProof {
  std::string target{};  // folders
  std::string draft{};   // empty without a draft
  std::string drafter{};
  std::string device{};
  std::string planted{};  // the planted fault, or empty
  int num_prompts = 0;
  double error_rate = 0.0;
  std::vector<ExactCheck> exact{};
  std::vector<LawCheck> laws{};
  std::vector<FaultCheck> faults{};
  ProofVerdict verdict = ProofVerdict::kIncomplete;
  std::string reason{};  // the reason for the verdict, in one sentence
  absl::Duration time;
};

// Runs the proof. Errors concern the options, files or memory; a broken law is not an error but a
// verdict.
absl::StatusOr<LosslessProof> ProveLossless(const EngineOptions& engine,
                                            const ProofOptions& options);

// The name and meaning of a fault that can be planted.
struct FaultName {
  std::string_view name{};
  std::string_view what{};
};
std::vector<FaultName> PlantableFaults();

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_
