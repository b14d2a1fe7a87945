#include "verify/verifier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// The logits of one request's pass.
struct Rows {
  MatrixView logits;
  int first = 0;  // row of the pass
  absl::Span<const float> operator[](int i) const {
    return {static_cast<const float*>(logits.data) + (first + i) * logits.stride,
            static_cast<size_t>(logits.cols)};
  }
};

bool WantsPromptLogprobs(const VerifyRequest& request) {
  return request.prompt_logprobs.num_top >= 0 && request.kv->length() + 1 < request.prompt_length;
}

// Whether nothing but the largest entry of each row decides or is told.
bool WantsOnlyLargest(const VerifyRequest& request) {
  return request.sampling->takes_largest() && request.logprobs.num_top < 0 &&
         !WantsPromptLogprobs(request) && request.on_rows == nullptr;
}

// The draft tokens to be read: those before the first that the target does not know, behind which
// every rule rejects.
absl::Span<const TokenId> KnownPart(const Proposal& proposal, int vocab_size) {
  const absl::Span<const TokenId> tokens = proposal.tokens;
  const auto known = [vocab_size](TokenId token) { return 0 <= token && token < vocab_size; };
  return tokens.first(std::find_if_not(tokens.begin(), tokens.end(), known) - tokens.begin());
}

// The target's distributions behind the parts of a draft, made when they are asked for: a row past
// the rejection is one that plain decoding never sees.
class LazyRows {
 public:
  LazyRows(const VerifyRequest& request, const Rows& logits, std::vector<Distribution>* rows)
      : request_(request), logits_(logits), rows_(*rows) {
    rows_.resize(kMaxDraftTokens + 1);
  }
  ~LazyRows() {  // the counts are left as found
    for (int i = 0; i < num_counted_; ++i) {
      request_.counts->RemoveOutput(request_.proposal->tokens[i]);
    }
  }

  // INVALID_ARGUMENT for a row that is no distribution, and for all behind it.
  absl::StatusOr<const Distribution*> Row(int slot) {
    while (num_made_ <= slot && failure_.ok()) {
      const int i = num_made_;
      if (request_.counts != nullptr && i > 0) {
        request_.counts->AddOutput(request_.proposal->tokens[i - 1]);
        ++num_counted_;
      }
      const absl::Status status =
          MakeDistribution(logits_[i], *request_.sampling, request_.counts, &rows_[i]);
      if (status.ok()) {
        ++num_made_;
      } else {
        failure_ = absl::InvalidArgumentError(absl::StrCat(
            "the target's row for position ", request_.context.size() + i, ": ", status.message()));
      }
    }
    if (slot < num_made_) return &rows_[slot];
    return failure_;
  }

  absl::Span<const Distribution> made() const {
    return absl::MakeConstSpan(rows_).first(num_made_);
  }

 private:
  const VerifyRequest& request_;
  const Rows& logits_;
  std::vector<Distribution>& rows_;
  int num_made_ = 0;
  int num_counted_ = 0;  // draft tokens added to the counts
  absl::Status failure_;
};

// Judges the first `count` tokens of the proposal.
absl::StatusOr<Verdict> JudgeRequest(const VerifyRequest& request, size_t count, TargetRows target,
                                     const JudgeFunction& judge) {
  const auto committed = static_cast<uint32_t>(request.context.size());
  const auto place = [&](RandomStream stream, int slot) {
    return RandomPlace{
        .stream = stream, .position = committed, .slot = static_cast<uint32_t>(slot)};
  };
  const auto accept_uniform = [&](int slot) {
    return request.random.Uniform(place(RandomStream::kAccept, slot));
  };
  const auto draw_residual = [&](absl::Span<const float> weights, int slot) {
    return DrawFromWeights(weights, request.random, place(RandomStream::kResidual, slot));
  };
  const auto draw_target = [&](const Distribution& distribution, int slot) {
    return Draw(distribution, request.random,
                {.stream = RandomStream::kTarget, .position = committed + slot});
  };
  return judge(request.rule, absl::MakeConstSpan(request.proposal->tokens).first(count), target,
               request.proposal->drawn_from, {accept_uniform, draw_residual, draw_target});
}

void ReportLogprobs(const VerifyRequest& request, const Rows& rows,
                    absl::Span<const Distribution> target, VerifyResult* result) {
  const int count = result->verdict.num_accepted + (result->status.ok() ? 1 : 0);
  for (int i = 0; i < count; ++i) {
    const TokenId token =
        i < result->verdict.num_accepted ? request.proposal->tokens[i] : result->verdict.next;
    result->logprobs.push_back(request.logprobs.processed
                                   ? LogprobsOf(target[i], token, request.logprobs.num_top)
                                   : LogprobsOf(rows[i], token, request.logprobs.num_top));
  }
}

// A row that is no distribution stands for one whose mass is on a symbol of its own, the failure:
// whoever gets there fails, as in plain decoding, and the draft token at its place is rejected. So
// the draft is judged up to there; if all of it is accepted the failure is what follows.
void Finish(const VerifyRequest& request, const Rows& logits, const JudgeFunction& judge,
            std::vector<Distribution>* rows, VerifyResult* result) {
  LazyRows lazy(request, logits, rows);
  const auto row = [&lazy](int slot) { return lazy.Row(slot); };
  absl::StatusOr<Verdict> verdict =
      JudgeRequest(request, request.proposal->tokens.size(), row, judge);
  const int num_good = static_cast<int>(lazy.made().size());
  if (!verdict.ok()) verdict = JudgeRequest(request, num_good, row, judge);
  result->status = verdict.status();
  result->verdict = verdict.ok() ? *verdict : Verdict{.num_accepted = num_good, .next = -1};
  result->judged = true;
  if (request.on_rows) request.on_rows(lazy.made());
  if (request.logprobs.num_top >= 0) ReportLogprobs(request, logits, *rows, result);
}

}  // namespace

absl::Status Verifier::Verify(absl::Span<const VerifyRequest> requests,
                              absl::Span<VerifyResult> results) {
  std::vector<std::vector<TokenId>> fed(requests.size());
  std::vector<ForwardRequest> passes;
  // Rows of prompt log-probabilities before the judged ones, and of both.
  std::vector<int> num_prompt_rows(requests.size());
  std::vector<int> num_judged_rows(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const VerifyRequest& r = requests[i];
    const absl::Span<const TokenId> pending = r.context.subspan(r.kv->length());
    TANDEM_CHECK(1 <= r.num_fed && r.num_fed <= static_cast<int>(pending.size()));
    fed[i].assign(pending.begin(), pending.begin() + r.num_fed);
    if (r.judges()) {
      TANDEM_CHECK(r.proposal->tokens.size() <= size_t{kMaxDraftTokens});
      const absl::Span<const TokenId> drafted = KnownPart(*r.proposal, target_->vocab_size());
      fed[i].insert(fed[i].end(), drafted.begin(), drafted.end());
      num_judged_rows[i] = static_cast<int>(drafted.size()) + 1;
    }
    // The row of the context's last token is a judged one.
    if (WantsPromptLogprobs(r)) num_prompt_rows[i] = r.num_fed - (r.judges() ? 1 : 0);
    passes.push_back({.tokens = fed[i],
                      .kv = r.kv,
                      .num_logits = num_prompt_rows[i] + num_judged_rows[i],
                      .only_largest = WantsOnlyLargest(r)});
  }
  std::vector<int> lengths_before;
  for (const VerifyRequest& r : requests) lengths_before.push_back(r.kv->length());
  ASSIGN_OR_RETURN(const MatrixView logits, target_->Forward(passes));
  Rows rows{.logits = logits};
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i] = VerifyResult();
    for (int j = 0; j < num_prompt_rows[i]; ++j) {
      const TokenId token = requests[i].context[lengths_before[i] + j + 1];
      results[i].prompt_logprobs.push_back(
          LogprobsOf(rows[j], token, requests[i].prompt_logprobs.num_top));
    }
    rows.first += num_prompt_rows[i];
    if (num_judged_rows[i] > 0) Finish(requests[i], rows, judge_, &rows_, &results[i]);
    rows.first += num_judged_rows[i];
  }
  return absl::OkStatus();
}

}  // namespace tandem
