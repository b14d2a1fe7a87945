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

// One sequence's share of a pass. Feeds `num_fed` of the context's tokens that its cache lacks. If
// no context token is left unread, feeds the proposal too and judges it.
struct VerifyRequest {
  absl::Span<const TokenId> context;  // every committed token
  int num_fed = 0;                    // in [1, context.size() - kv->length()]
  Proposal* proposal = nullptr;       // rows on a device may be moved to the host
  const SamplingParams* sampling = nullptr;
  // The history of `context`, unchanged on return. Null if `sampling` does not need it.
  TokenHistory* history = nullptr;
  RandomSource random{0};
  AcceptanceRule rule = AcceptanceRule::kToken;
  KvSequence* kv = nullptr;  // the target's
  // Receives the target's distributions after 0, 1, ... tokens of the proposal, up to the last one
  // that the rule used. May be null.
  std::function<void(absl::Span<const Distribution> rows)> on_rows = nullptr;
  // If this is true when its turn comes, the request is not judged in this pass, and has no status.
  // May be null.
  std::function<bool()> is_put_off = nullptr;
  bool wants_rejected = false;  // VerifyResult::likeliest_after_rejected
  LogprobOptions logprobs = {};
  LogprobOptions prompt_logprobs = {};  // from raw rows only
  int prompt_length = 0;                // the end of prompt_logprobs

  bool judges() const { return kv->length() + num_fed == static_cast<int>(context.size()); }
};

struct VerifyResult {
  // The error of this request alone. MakeDistribution's error if the row for the next token is not
  // a distribution: then the verdict keeps the tokens accepted before it, and `next` is -1. After
  // an exception, or if it was put off, `judged` is false.
  absl::Status status;
  bool judged = false;
  Verdict verdict;
  // With request.wants_rejected: the target's most likely token after the first, the second, ...
  // rejected token, if the rows are on the host; -1 for an invalid row.
  std::vector<TokenId> likeliest_after_rejected;
  // With request.logprobs: for the accepted tokens, and for verdict.next if there is one, from the
  // rows that decided them.
  std::vector<TokenLogprobs> logprobs;
  // With request.prompt_logprobs: for each prompt token that follows a fed token.
  std::vector<TokenLogprobs> prompt_logprobs;
};

// Judges drafts with the target. Keeps the rows of a round, so that they are allocated once.
// Thread-compatible.
class Verifier {
 public:
  // `target` must outlive the verifier.
  explicit Verifier(LanguageModel* target, JudgeFunction judge = Judge)
      : target_(target), judge_(std::move(judge)) {}
  LanguageModel* target() const { return target_; }

  // Runs all requests in one pass of the target, and judges every proposal whose context is
  // complete. Each kv grows by all tokens fed, including rejected ones; the caller truncates it. A
  // draft token outside the target's vocabulary is rejected; it and the tokens after it are not
  // fed. A request whose rows are not distributions fails alone, and so does one whose constraint
  // throws. On error no kv has changed.
  // REQUIRES: proposals of at most kMaxDraftTokens.
  absl::Status Verify(absl::Span<const VerifyRequest> requests, absl::Span<VerifyResult> results);

 private:
  absl::StatusOr<std::vector<DeviceSlots>> SampleOnDevice(absl::Span<const VerifyRequest> requests,
                                                          absl::Span<const ForwardRequest> passes);

  LanguageModel* target_;
  JudgeFunction judge_;
  std::vector<Distribution> rows_;  // [kMaxDraftTokens + 1], of the request being judged
};

}  // namespace tandem

#endif  // TANDEM_VERIFY_VERIFIER_H_
