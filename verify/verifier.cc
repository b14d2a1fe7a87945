#include "verify/verifier.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// The logits of one request's pass.
struct Rows {
  MatrixView logits;
  int first = 0;  // index of the first row in `logits`
  absl::Span<const float> operator[](int i) const {
    return {static_cast<const float*>(logits.data) + (first + i) * logits.stride,
            static_cast<size_t>(logits.cols)};
  }
};

bool WantsPromptLogprobs(const VerifyRequest& request) {
  return request.prompt_logprobs.num_top >= 0 && request.kv->length() + 1 < request.prompt_length;
}

// Whether rows are used by anything but the rule.
bool IsWatched(const VerifyRequest& request) {
  return request.logprobs.num_top >= 0 || WantsPromptLogprobs(request) ||
         request.on_rows != nullptr;
}

LogitsToHost WantedOf(const VerifyRequest& request, const DeviceRows& rows) {
  if (IsWatched(request)) return LogitsToHost::kWhole;
  if (request.sampling->takes_argmax()) return LogitsToHost::kOnlyArgMax;
  const bool can_stay = request.judges() && CanSampleOnDevice(rows, *request.sampling) &&
                        DeviceSlots::CanHold(*request.proposal);
  return can_stay ? LogitsToHost::kNothing : LogitsToHost::kWhole;
}

// Returns the draft tokens to feed: those before the first token outside the target's vocabulary.
// Every rule rejects that token.
absl::Span<const TokenId> KnownPart(const Proposal& proposal, int vocab_size) {
  const absl::Span<const TokenId> tokens = proposal.tokens;
  const auto known = [vocab_size](TokenId token) { return 0 <= token && token < vocab_size; };
  return tokens.first(std::find_if_not(tokens.begin(), tokens.end(), known) - tokens.begin());
}

// The target's distributions along a draft, made on demand. Plain decoding never sees a row after a
// rejection, so such a row must not cause a failure.
class LazyRows {
 public:
  LazyRows(const VerifyRequest& request, const Rows& logits, std::vector<Distribution>* rows)
      : request_(request), logits_(logits), rows_(*rows), walk_(request.history) {
    rows_.resize(kMaxDraftTokens + 1);
  }

  // Returns the distribution after `slot` draft tokens, or MakeDistribution's error for an invalid
  // row and for all rows after it.
  absl::StatusOr<const Distribution*> Row(int slot) {
    while (num_made_ <= slot && failure_.ok()) {
      const int i = num_made_;
      if (i > 0) walk_.Add(request_.proposal->tokens[i - 1]);
      const absl::Status status =
          MakeDistribution(logits_[i], *request_.sampling, request_.history, &rows_[i]);
      if (status.ok()) {
        ++num_made_;
      } else {
        failure_ = status;
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
  DraftWalk walk_;
  int num_made_ = 0;
  absl::Status failure_;
};

RoundPlaces PlacesOf(const VerifyRequest& request) {
  return {.committed = static_cast<uint32_t>(request.context.size())};
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

// Judges a draft. A row that is not a distribution is treated as one with all its mass on a special
// symbol, the failure: the draft token at its place is rejected, and a request that gets there
// fails, as in plain decoding. So the draft is judged up to that row; if all of that part is
// accepted, the request fails.
void Conclude(const VerifyRequest& request, const JudgeFunction& judge, Slots& slots,
              VerifyResult* result) {
  result->judged = true;
  const int num_tokens = static_cast<int>(request.proposal->tokens.size());
  absl::StatusOr<Verdict> verdict = judge(request.rule, num_tokens, slots);
  if (!verdict.ok()) verdict = judge(request.rule, slots.num_reached(), slots);
  if (verdict.ok()) {
    result->verdict = *verdict;
    return;
  }
  const int num_good = slots.num_reached();
  result->verdict = {.num_accepted = num_good, .next = -1};
  if (!FieldOf(verdict.status()).empty()) {  // an error of the request, not of the row
    result->status = verdict.status();
    return;
  }
  const size_t position = request.context.size() + num_good;
  result->status = {
      verdict.status().code(),
      absl::StrCat("the target's row for position ", position, ": ", verdict.status().message())};
}

// `num_rows`: the number of this request's rows in `logits`.
void JudgeOnHost(const VerifyRequest& request, const Rows& logits, int num_rows,
                 const JudgeFunction& judge, std::vector<Distribution>* rows,
                 VerifyResult* result) {
  LazyRows lazy(request, logits, rows);
  const auto row = [&lazy](int slot) { return lazy.Row(slot); };
  const RoundPlaces places = PlacesOf(request);
  const auto accept_uniform = [&](int slot) {
    return request.random.Uniform(places.At(RandomStream::kAccept, slot));
  };
  const auto draw_residual = [&](absl::Span<const float> weights, int slot) {
    return DrawFromWeights(weights, request.random, places.At(RandomStream::kResidual, slot));
  };
  const auto draw_target = [&](const Distribution& distribution, int slot) {
    return Draw(distribution, request.random, places.Target(slot));
  };
  const RoundNoise noise{accept_uniform, draw_residual, draw_target};
  HostSlots slots(request.proposal->tokens, row, request.proposal->drawn_from, noise);
  Conclude(request, judge, slots, result);
  if (request.on_rows) request.on_rows(lazy.made());
  if (request.wants_rejected) {
    for (int i = result->verdict.num_accepted + 1; i < num_rows; ++i) {
      result->likeliest_after_rejected.push_back(ArgMax(logits[i]));
    }
  }
  if (request.logprobs.num_top >= 0) ReportLogprobs(request, logits, *rows, result);
}

}  // namespace

absl::Status Verifier::Verify(absl::Span<const VerifyRequest> requests,
                              absl::Span<VerifyResult> results) {
  TANDEM_CHECK(results.size() == requests.size());
  std::vector<std::vector<TokenId>> fed(requests.size());
  std::vector<ForwardRequest> passes;
  // The number of rows for prompt log-probabilities, and of the judged rows that follow them.
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
    // The row of the context's last token is a judged row.
    if (WantsPromptLogprobs(r)) num_prompt_rows[i] = r.num_fed - (r.judges() ? 1 : 0);
    passes.push_back({.tokens = fed[i],
                      .kv = r.kv,
                      .num_logits = num_prompt_rows[i] + num_judged_rows[i],
                      .to_host = WantedOf(r, target_->device_rows())});
  }
  std::vector<int> lengths_before;
  for (const VerifyRequest& r : requests) lengths_before.push_back(r.kv->length());
  ASSIGN_OR_RETURN(const MatrixView logits, target_->Forward(passes));
  absl::StatusOr<std::vector<DeviceSlots>> on_device = SampleOnDevice(requests, passes);
  if (!on_device.ok()) {
    for (size_t i = 0; i < requests.size(); ++i) requests[i].kv->Truncate(lengths_before[i]);
    return on_device.status();
  }
  auto next_on_device = on_device->begin();
  int first_row = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i] = VerifyResult();
    const absl::Status status = Caught("judging a draft", [&] {
      const Rows prompt_rows{.logits = logits, .first = first_row};
      for (int j = 0; j < num_prompt_rows[i]; ++j) {
        const TokenId token = requests[i].context[lengths_before[i] + j + 1];
        results[i].prompt_logprobs.push_back(
            LogprobsOf(prompt_rows[j], token, requests[i].prompt_logprobs.num_top));
      }
      if (requests[i].is_put_off && requests[i].is_put_off()) return;
      const Rows judged_rows{.logits = logits, .first = first_row + num_prompt_rows[i]};
      if (passes[i].to_host == LogitsToHost::kNothing) {
        Conclude(requests[i], judge_, *next_on_device, &results[i]);
      } else if (num_judged_rows[i] > 0) {
        JudgeOnHost(requests[i], judged_rows, num_judged_rows[i], judge_, &rows_, &results[i]);
      }
    });
    if (!status.ok()) {
      results[i] = VerifyResult();
      results[i].status = status;
    }
    if (passes[i].to_host == LogitsToHost::kNothing) ++next_on_device;
    first_row += num_prompt_rows[i] + num_judged_rows[i];
  }
  return absl::OkStatus();
}

// Makes the slots of the requests whose rows stay on the device, in order. Moves the draft rows of
// the other judged requests to the host.
absl::StatusOr<std::vector<DeviceSlots>> Verifier::SampleOnDevice(
    absl::Span<const VerifyRequest> requests, absl::Span<const ForwardRequest> passes) {
  const DeviceRows rows = target_->device_rows();
  std::vector<DeviceSlots::Draft> drafts;
  int row = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const VerifyRequest& r = requests[i];
    if (passes[i].to_host == LogitsToHost::kNothing) {
      drafts.push_back({.proposal = r.proposal,
                        .sampling = r.sampling,
                        .random = r.random,
                        .places = PlacesOf(r),
                        .rule = r.rule,
                        .first_row = row,
                        .num_rows = passes[i].num_logits});
    } else if (passes[i].num_logits > 0) {
      for (size_t j = 0; j < r.proposal->tokens.size(); ++j) {
        MoveToHost(rows.backend, &r.proposal->drawn_from[j]);
      }
    }
    row += passes[i].num_logits;
  }
  return DeviceSlots::Ask(rows, drafts);
}

}  // namespace tandem
