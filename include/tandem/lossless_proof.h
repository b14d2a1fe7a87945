// Proves on a pair of models and this machine that speculation changes nothing: exact equality
// where it must hold, tests of the output's law where only that can be equal, and planted mistakes
// that the same checks must see (docs/proof.md).
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
  std::vector<std::string> prompts{};              // texts, and
  std::vector<std::vector<TokenId>> prompt_ids{};  // ids
  int draft_tokens = 4;                            // k, from 1
  absl::Duration time = absl::Seconds(75);         // to be aimed at; some runs are made in any case
  int64_t runs = 0;          // of every test of a law; 0: as many as the time allows
  uint64_t seed = 1;         // of all random numbers
  std::string plant{};       // a fault to be planted in what is proved; empty: none
  double error_rate = 1e-4;  // chance of a wrong "broken", over all tests of laws together
  // Called now and then with the share that is done, in [0, 1].
  std::function<void(double share)> on_progress{};

  // INVALID_ARGUMENT naming the field, what was given and what is allowed.
  absl::Status Validate() const;
};

// Sampling parameters under a short name.
struct ProofSampling {
  std::string name{};
  SamplingParams params;
};

// Something that must be equal, bit for bit.
struct ExactCheck {
  std::string name{};
  std::string what{};  // was compared, and how
  int64_t compared = 0;
  int64_t different = 0;
  std::string first_difference{};  // where, if any
};

// A test whether generations follow the target's exact law.
struct LawCheck {
  std::string rule{};  // an acceptance rule, or "plain" without a draft
  std::string sampling{};
  int prompt_tokens = 0;
  int draft_tokens = 0;
  int length = 0;           // tokens of each generation that are looked at
  bool models_ran = false;  // in every round; else rows were looked up, computed once
  int64_t runs = 0;
  double accepted = 0.0;   // share of the draft's tokens
  double statistic = 0.0;  // G
  int degrees = 0;
  double p_value = 1.0;
  double adjusted_p = 1.0;      // for all tests of laws together (Holm)
  double seen_variation = 1.0;  // a total variation from here on is rejected in 99 of 100 cases
};

// What became of a planted fault.
struct FaultCheck {
  std::string fault{};
  std::string what{};
  std::string rule{};     // empty where the fault is not one of the law
  std::string seen_by{};  // "law", "output", "draft"
  bool applies = true;    // to this drafter
  bool caught = false;
  int64_t runs = 0;  // of the test of the law
  std::string sampling{};
  int draft_tokens = 0;
  int length = 0;
  double statistic = 0.0;
  int degrees = 0;
  double p_value = 1.0;
  int64_t compared = 0;  // of the exact check
  int64_t different = 0;
};

enum class ProofVerdict {
  kLossless,    // all equal, no law broken, every fault caught
  kBroken,      // something that must be equal is not, or a law is broken
  kIncomplete,  // nothing was found, but a fault was not seen either, or nothing was drafted
};
std::string_view NameOf(ProofVerdict verdict);

struct LosslessProof {
  std::string target{};  // folders
  std::string draft{};   // or empty
  std::string drafter{};
  std::string device{};
  std::string planted{};  // what was planted, or empty
  int num_prompts = 0;
  double error_rate = 0.0;
  std::vector<ExactCheck> exact{};
  std::vector<LawCheck> laws{};
  std::vector<FaultCheck> faults{};
  ProofVerdict verdict = ProofVerdict::kIncomplete;
  std::string reason{};  // for the verdict, in a sentence
  absl::Duration time;
};

// Errors are of the options, the files and the memory; a broken law is a verdict.
absl::StatusOr<LosslessProof> ProveLossless(const EngineOptions& engine,
                                            const ProofOptions& options);

// The names and meanings of the faults that can be planted.
struct FaultName {
  std::string_view name{};
  std::string_view what{};
};
std::vector<FaultName> PlantableFaults();

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_LOSSLESS_PROOF_H_
