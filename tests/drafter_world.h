// Sequences to draft for, and a draft model with its drafter.
#ifndef TANDEM_TESTS_DRAFTER_WORLD_H_
#define TANDEM_TESTS_DRAFTER_WORLD_H_

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "draft/model_drafter.h"
#include "gtest/gtest.h"
#include "model/device_sampling.h"
#include "tests/fake_model.h"

namespace tandem {

// A sequence to draft for. Works with any drafter.
struct DraftedText {
  std::vector<TokenId> tokens;
  SamplingParams sampling = {};
  RandomSource random{1};
  DraftNoise noise = DraftNoise::kOwn;
  TokenHistory history = {};
  std::unique_ptr<DraftState> state = nullptr;
  Proposal proposal = {};
  DraftStop stop = {};
  KvSequence kv = {};  // of the target, for a drafter that reads its states

  DraftRequest Request(int max_tokens) {
    return {.context = tokens,
            .granted = max_tokens,
            .sampling = &sampling,
            .history = sampling.needs_history() ? &history : nullptr,
            .random = random,
            .noise = noise,
            .stop = stop,
            .state = state.get(),
            .target_kv = &kv};
  }
};

inline absl::Status ProposeFor(Drafter& drafter, const std::vector<DraftedText*>& texts,
                               const std::vector<int>& max_tokens) {
  std::vector<DraftRequest> requests;
  std::vector<Proposal*> proposals;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i]->proposal.Clear();
    requests.push_back(texts[i]->Request(max_tokens[i]));
    proposals.push_back(&texts[i]->proposal);
  }
  return drafter.Propose(requests, proposals);
}

// Expects that the draft's tokens were drawn in order from the recorded distributions, and that
// these are the distributions of the rows that `row_after` returns for the text so far.
inline void ExpectDrawnFrom(
    const DraftedText& s,
    absl::FunctionRef<std::vector<float>(const std::vector<TokenId>&)> row_after) {
  std::vector<TokenId> context = s.tokens;
  TokenHistory history = s.history;
  for (size_t i = 0; i < s.proposal.tokens.size(); ++i) {
    Distribution expected;
    ASSERT_TRUE(MakeDistribution(row_after(context), s.sampling, &history, &expected).ok());
    ASSERT_EQ(s.proposal.drawn_from[i].only, expected.only);
    ASSERT_EQ(s.proposal.drawn_from[i].probs, expected.probs);
    const RandomPlace place = s.noise == DraftNoise::kTargets
                                  ? RandomPlace{.stream = RandomStream::kTarget,
                                                .position = static_cast<uint32_t>(context.size())}
                                  : RandomPlace{.stream = RandomStream::kDraft,
                                                .position = static_cast<uint32_t>(s.tokens.size()),
                                                .slot = static_cast<uint32_t>(i)};
    ASSERT_EQ(s.proposal.tokens[i], Draw(expected, s.random, place));
    context.push_back(s.proposal.tokens[i]);
    history.AddOutput(s.proposal.tokens[i]);
  }
}

class DrafterWorld {
 public:
  struct Options {
    FakeModel::Options model;
    int page_size = 3;
    int num_pages = 400;
    int target_vocab = 7;
    int chunk_tokens = 8;
    TokenId mask_token = kNoMaskToken;
  };
  DrafterWorld() : DrafterWorld(Options()) {}
  explicit DrafterWorld(const Options& options)
      : cache_(options.page_size, options.num_pages),
        model_(cache_.get(), options.model),
        drafter_(&model_, cache_.get(), options.target_vocab, options.chunk_tokens,
                 /*vocabulary=*/nullptr, options.mask_token),
        target_vocab_(options.target_vocab),
        mask_token_(options.mask_token) {}

  using Sequence = DraftedText;
  Sequence* Add(std::vector<TokenId> tokens, SamplingParams sampling = {}, uint64_t seed = 1) {
    sequences_.push_back(
        {.tokens = std::move(tokens), .sampling = sampling, .random = RandomSource(seed)});
    Sequence* s = &sequences_.back();
    s->state = drafter_.NewState(s->tokens);
    s->history.AddPrompt(s->tokens);
    return s;
  }

  absl::Status Propose(const std::vector<Sequence*>& sequences,
                       const std::vector<int>& max_tokens) {
    return ProposeFor(drafter_, sequences, max_tokens);
  }
  std::vector<TokenId> Draft(Sequence* s, int max_tokens) {
    const absl::Status status = Propose({s}, {max_tokens});
    EXPECT_TRUE(status.ok()) << status;
    return s->proposal.tokens;
  }
  // The sequence's cache, as recorded by Learn(), and the tokens that it holds.
  const KvSequence* KvOf(const Sequence& s) { return kvs_.at(s.state.get()); }
  std::vector<TokenId> Cached(const Sequence& s) { return FakeModel::Contents(*KvOf(s)); }
  // Records which cache belongs to `s`, which must be the only sequence of the last draft.
  void Learn(const Sequence& s) {
    if (!model_.passes().empty()) kvs_[s.state.get()] = model_.passes().back().back().kv;
  }

  // Expects that the draft's tokens were drawn in order from the recorded distributions, and that
  // these are the distributions of this model's rows: after the tokens drawn before, or after masks
  // in place of them.
  void ExpectDrawnAsRecorded(Sequence& s) {
    for (Distribution& row : s.proposal.drawn_from) {
      MoveToHost(model_.device_rows().backend, &row);
    }
    ExpectDrawnFrom(s, [&](std::vector<TokenId> context) {
      if (mask_token_ != kNoMaskToken) {
        std::fill(context.begin() + static_cast<int64_t>(s.tokens.size()), context.end(),
                  mask_token_);
      }
      std::vector<float> row = model_.RowAfter(context);
      row.resize(std::min<size_t>(row.size(), target_vocab_));
      return row;
    });
  }

  FakeModel& model() { return model_; }
  FakeCache& cache() { return cache_; }
  ModelDrafter& drafter() { return drafter_; }

 private:
  FakeCache cache_;
  FakeModel model_;
  ModelDrafter drafter_;
  int target_vocab_;
  TokenId mask_token_;
  std::deque<Sequence> sequences_;  // addresses stay
  std::map<const DraftState*, const KvSequence*> kvs_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_DRAFTER_WORLD_H_
