// A target with its verifier, and sequences with proposals to verify.
#ifndef TANDEM_TESTS_VERIFY_WORLD_H_
#define TANDEM_TESTS_VERIFY_WORLD_H_

#include <deque>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fake_model.h"
#include "verify/verifier.h"

namespace tandem {

// A sequence that the target reads, followed by a proposal.
struct VerifySequence {
  std::vector<TokenId> context;
  SamplingParams sampling = {};
  RandomSource random{1};
  AcceptanceRule rule = AcceptanceRule::kToken;
  Proposal proposal = {};
  TokenHistory history = {};
  KvSequence kv = {};
  bool wants_rejected = false;
  LogprobOptions logprobs = {};
  LogprobOptions prompt_logprobs = {};

  int num_pending() const { return static_cast<int>(context.size()) - kv.length(); }

  VerifyRequest Request(int num_fed) {
    return {.context = context,
            .num_fed = num_fed,
            .proposal = &proposal,
            .sampling = &sampling,
            .history = sampling.needs_history() ? &history : nullptr,
            .random = random,
            .rule = rule,
            .kv = &kv,
            .wants_rejected = wants_rejected,
            .logprobs = logprobs,
            .prompt_logprobs = prompt_logprobs,
            .prompt_length = static_cast<int>(context.size())};
  }
};

class VerifyWorld {
 public:
  explicit VerifyWorld(FakeModel::Options options = {}, int num_pages = 300,
                       JudgeFunction judge = Judge)
      : cache_(3, num_pages),
        model_(cache_.get(), options),
        draft_(cache_.get(), {.salt = 99}),
        verifier_(&model_, std::move(judge)) {}

  VerifySequence* Add(std::vector<TokenId> context, SamplingParams sampling = {},
                      uint64_t seed = 1) {
    sequences_.push_back({.context = std::move(context),
                          .sampling = std::move(sampling),
                          .random = RandomSource(seed)});
    sequences_.back().kv = cache_->NewSequence();
    sequences_.back().history.AddPrompt(sequences_.back().context);
    return &sequences_.back();
  }
  // Proposes `count` tokens drawn from another fake's rows.
  void Propose(VerifySequence* s, int count) {
    std::vector<TokenId> context = s->context;
    s->proposal.Clear();
    for (int i = 0; i < count; ++i) {
      Distribution* q = s->proposal.NextDistribution();
      ASSERT_TRUE(MakeDistribution(draft_.RowAfter(context), {}, nullptr, q).ok());
      s->proposal.tokens.push_back(Draw(*q, s->random,
                                        {.stream = RandomStream::kDraft,
                                         .position = static_cast<uint32_t>(s->context.size()),
                                         .slot = static_cast<uint32_t>(i)}));
      context.push_back(s->proposal.tokens.back());
    }
  }
  absl::Status Verify(const std::vector<VerifySequence*>& sequences,
                      std::vector<VerifyResult>* results, const std::vector<int>& num_fed = {}) {
    std::vector<VerifyRequest> requests;
    for (size_t i = 0; i < sequences.size(); ++i) {
      requests.push_back(
          sequences[i]->Request(num_fed.empty() ? sequences[i]->num_pending() : num_fed[i]));
    }
    results->resize(requests.size());
    return verifier_.Verify(requests, absl::MakeSpan(*results));
  }
  VerifyResult Verify(VerifySequence* s, int num_fed = -1) {
    std::vector<VerifyResult> results;
    const absl::Status status = Verify({s}, &results, {num_fed < 0 ? s->num_pending() : num_fed});
    EXPECT_TRUE(status.ok()) << status;
    return results[0];
  }
  // Returns the target's distribution after the context and the first `count` proposed tokens.
  Distribution TargetRow(const VerifySequence& s, int count) const {
    std::vector<TokenId> context = s.context;
    TokenHistory history = s.history;
    for (int i = 0; i < count; ++i) {
      context.push_back(s.proposal.tokens[i]);
      history.AddOutput(s.proposal.tokens[i]);
    }
    Distribution row;
    EXPECT_TRUE(MakeDistribution(model_.RowAfter(context), s.sampling, &history, &row).ok());
    return row;
  }

  FakeModel& model() { return model_; }
  FakeCache& cache() { return cache_; }

 private:
  FakeCache cache_;
  FakeModel model_;
  FakeModel draft_;  // for its rows only
  Verifier verifier_;
  std::deque<VerifySequence> sequences_;
};

inline SamplingParams Penalized() {
  return {.temperature = 0.8f,
          .repetition_penalty = 1.3f,
          .frequency_penalty = 0.7f,
          .presence_penalty = 0.25f};
}

}  // namespace tandem

#endif  // TANDEM_TESTS_VERIFY_WORLD_H_
