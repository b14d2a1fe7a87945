// Where speculation must be plain decoding bit for bit: rows of logits, seeded and greedy output
// with its log-probabilities, and the state of the draft.
#ifndef TANDEM_PROOF_EXACT_CHECKS_H_
#define TANDEM_PROOF_EXACT_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proof/proof_world.h"
#include "tandem/lossless_proof.h"

namespace tandem {

struct ExactOptions {
  std::vector<std::vector<TokenId>> prompts;
  std::vector<ProofSampling> settings;
  int draft_tokens = 4;
  int max_tokens = 48;  // per generation
  uint64_t seed = 0;
  // Called after every part. When it returns false the rest is left out; one part of each kind is
  // done whatever it says.
  absl::FunctionRef<bool()> go_on;
};

// Rows of passes with 1 to draft_tokens + 1 and more rows, for all prompts in one batch, against
// rows had one by one: `plain` decodes, `target` is judged.
absl::StatusOr<ExactCheck> CheckRows(LanguageModel* plain, LanguageModel* target,
                                     PagedKvCache* cache, const ExactOptions& options);

// Generations by rounds of `world` against decoding with `plain`, a row at a time: exact_match with
// seeds, every rule at temperature 0; several draft lengths, alone and in a batch, prompts whole
// and in pieces. A check for each rule.
absl::StatusOr<std::vector<ExactCheck>> CheckOutputs(LanguageModel* plain, const ProofWorld& world,
                                                     const ExactOptions& options);

// Proposals of running drafts, token by token and row by row, against those of a draft that has
// just read the same tokens. A draft head is compared with that of `defined`, a world of remembered
// models without mistakes, whose rows follow from the text alone (RememberedHead): another state of
// the same drafter would read what the target leaves with the same mistakes.
absl::StatusOr<ExactCheck> CheckDraftState(const ProofWorld& world, const ProofWorld& defined,
                                           const ExactOptions& options);

}  // namespace tandem

#endif  // TANDEM_PROOF_EXACT_CHECKS_H_
