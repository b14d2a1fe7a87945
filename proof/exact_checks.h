// Checks that speculation equals plain decoding bit for bit: rows of logits, seeded and greedy
// output with its log-probabilities, and the state of the draft.
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
  // Called after every part. If it returns false, the rest is skipped, except that at least one
  // part of each kind is always done.
  absl::FunctionRef<bool()> go_on;
};

// Compares the rows of passes over 1 to max(draft_tokens + 1, 8) rows, with all prompts in one
// batch, with rows computed one by one. `plain` decodes, `target` is checked.
absl::StatusOr<ExactCheck> CheckRows(LanguageModel* plain, LanguageModel* target,
                                     PagedKvCache* cache, const ExactOptions& options);

// Compares generations by rounds of `world` with decoding by `plain`, one row at a time. Covers
// exact_match with seeds, every rule at temperature 0, several draft lengths, single sequences and
// batches, and prompts read whole and in chunks. Returns one check for each rule.
absl::StatusOr<std::vector<ExactCheck>> CheckOutputs(LanguageModel* plain, const ProofWorld& world,
                                                     const ExactOptions& options);

// Compares the proposals of running drafts, token by token and row by row, with those of a draft
// that has just read the same tokens. A draft head is compared with that of `defined`, a sound
// world of remembered models, whose rows follow from the text alone (RememberedHead). Another state
// of the same drafter would not do, because it would read the target's states with the same
// mistakes.
absl::StatusOr<ExactCheck> CheckDraftState(const ProofWorld& world, const ProofWorld& defined,
                                           const ExactOptions& options);

}  // namespace tandem

#endif  // TANDEM_PROOF_EXACT_CHECKS_H_
