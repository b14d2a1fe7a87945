#ifndef TANDEM_VERIFY_VERIFIER_H_
#define TANDEM_VERIFY_VERIFIER_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "draft/proposal.h"
#include "model/language_model.h"
#include "tandem/sampling_params.h"
#include "verify/acceptance.h"
#include "verify/device_slots.h"

namespace tandem {

// One sequence's share of a pass: it reads `num_fed` of the context's tokens that its cache lacks,
// and if these are all, judges the proposal behind them.
struct VerifyRequest {
  absl::Span<const TokenId> context;  // every committed token
  int num_fed = 0;                    // in [1, context.size() - kv->length()]
  Proposal* proposal = nullptr;       // rows that are on a device may be brought to the host
  const SamplingParams* sampling = nullptr;
  TokenHistory* history = nullptr;  // of `context`; left as found. Null if `sampling` needs none.
  RandomSource random{0};
  AcceptanceRule rule = AcceptanceRule::kToken;
  KvSequence* kv = nullptr;  // the target's
  // Shown the target's distributions behind 0, 1, ... tokens of the proposal, as far as the rule
  // looked; may be null.
  std::function<void(absl::Span<const Distribution> rows)> on_rows = nullptr;
  bool wants_rejected = false;  // VerifyResult::likeliest_after_rejected
  LogprobOptions logprobs = {};
  LogprobOptions prompt_logprobs = {};  // raw rows only
  int prompt_length = 0;                // where prompt_logprobs end

  bool judges() const { return kv->length() + num_fed == static_cast<int>(context.size()); }
};

struct VerifyResult {
  // Of this request alone: MakeDistribution's error if the row that its next token would come from
  // is not a distribution. Then the verdict keeps what was accepted before, and has no next token.
  // An exception while judging leaves the request not judged.
  absl::Status status;
  bool judged = false;
  Verdict verdict;
  // With request.wants_rejected: the target's most likely token after the first, the second, ...
  // rejected token, where the rows are on the host; -1 where there is no such token.
  std::vector<TokenId> likeliest_after_rejected;
  // With request.logprobs: of the accepted tokens and of verdict.next if there is one, from the
  // rows that decided them.
  std::vector<TokenLogprobs> logprobs;
  // With request.prompt_logprobs: of the prompt's tokens right after those fed.
  std::vector<TokenLogprobs> prompt_logprobs;
};

// Judges drafts with the target. Holds the rows of a round, so that they are allocated once.
// Thread-compatible.
class Verifier {
 public:
  // `target` must outlive the verifier.
  explicit Verifier(LanguageModel* target, JudgeFunction judge = Judge)
      : target_(target), judge_(std::move(judge)) {}
  LanguageModel* target() const { return target_; }

  // Runs every request in one pass of the target and judges every proposal whose context is
  // complete. Each kv grows by all the tokens fed, rejected ones included; the caller truncates. A
  // draft token outside the target's vocabulary is rejected, and it and what follows are not fed.
  // A request whose rows are not distributions fails alone. The same holds for one whose constraint
  // throws. On error no kv has changed.
  // REQUIRES: proposals of at most kMaxDraftTokens.
  absl::Status Verify(absl::Span<const VerifyRequest> requests, absl::Span<VerifyResult> results);

 private:
  absl::StatusOr<std::vector<DeviceSlots>> AskDevice(absl::Span<const VerifyRequest> requests,
                                                     absl::Span<const ForwardRequest> passes);

  LanguageModel* target_;
  JudgeFunction judge_;
  std::vector<Distribution> rows_;  // [kMaxDraftTokens + 1], of the request being judged
};

}  // namespace tandem

#endif  // TANDEM_VERIFY_VERIFIER_H_
