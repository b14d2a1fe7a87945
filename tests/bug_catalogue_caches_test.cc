// The bug catalogue (docs/bug_catalogue.md), section 4: the draft's cache and the lengths of
// caches. Holes and wrong entries in a draft's cache do not change the text. They show in
// acceptance, and in the tokens that the models are fed.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

// ---- What a rollback must keep and forget ----

// A greedy drafter that uses the target's own rows over a memory of tokens. It rolls the memory
// back correctly or with a mistake.
class RememberingDrafter final : public Drafter {
 public:
  enum class Mistake { kNone, kKeepsRejected, kHoleAfterFullAcceptance, kTrimsTwoTooMany };
  RememberingDrafter(const FakeModel* model, Mistake mistake) : model_(model), mistake_(mistake) {}

  std::string_view name() const override { return "remembering"; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind /*kind*/, absl::Span<const TokenId> /*prompt*/,
                                         std::shared_ptr<const Tenant> /*tenant*/) override {
    return std::make_unique<State>();
  }
  std::vector<DraftOption> Options(DraftState* /*state*/,
                                   absl::Span<const TokenId> /*context*/) override {
    return {{.source = DraftSource::kModel, .evidence = 0, .max_tokens = 8, .num_unread = 1}};
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      State& state = *static_cast<State*>(request.state);
      Tokens& memory = state.memory;
      // The memory's length is the only cursor: remembered tokens are not read again.
      memory.resize(std::min(memory.size(), request.context.size()));
      num_fed_ += static_cast<int>(request.context.size() - memory.size());
      memory.insert(memory.end(), request.context.begin() + memory.size(), request.context.end());
      for (int j = 0; j < request.granted; ++j) {
        TokenId next = ArgMax(model_->RowAfter(memory));
        if (first_is_wrong_ && j == 0) next = (next + 1) % kSmallVocab;
        Suggest(next, proposals[i]);
        if (j + 1 < request.granted) {
          memory.push_back(next);
          ++num_fed_;
        } else if (mistake_ == Mistake::kHoleAfterFullAcceptance) {
          memory.push_back(0);  // "read", but not written
        }
      }
    }
    return absl::OkStatus();
  }
  void Rollback(DraftState* state, int length) override {
    Tokens& memory = static_cast<State*>(state)->memory;
    if (mistake_ == Mistake::kKeepsRejected) return;
    if (mistake_ == Mistake::kTrimsTwoTooMany) length = std::max(0, length - 2);
    memory.resize(std::min(static_cast<int>(memory.size()), length));
  }
  void set_first_is_wrong(bool value) { first_is_wrong_ = value; }
  int num_fed() const { return num_fed_; }

 private:
  struct State final : DraftState {
    Tokens memory;
  };
  const FakeModel* model_;
  Mistake mistake_;
  bool first_is_wrong_ = false;
  int num_fed_ = 0;
};

struct Acceptance {
  double rate = 0.0;  // accepted tokens per token proposed in rounds that draft correctly
  int num_fed = 0;
};

Acceptance AcceptanceWith(RememberingDrafter::Mistake mistake) {
  RoundModels models({.num_pages = 2000});
  RememberingDrafter drafter(&models.target, mistake);
  const auto s =
      Start(&models, &drafter,
            {.prompt = {3, 1, 4}, .max_tokens = 2000, .sampling = {.temperature = 0.0f}});
  int64_t proposed = 0;
  for (int round = 0; !s->finished; ++round) {
    drafter.set_first_is_wrong(round % 3 == 0);
    EXPECT_TRUE(models.Round(&drafter, s.get(), 1 + round % 5).ok());
    if (round % 3 != 0) proposed += static_cast<int64_t>(s->proposal.tokens.size());
    models.target.passes().clear();
  }
  return {static_cast<double>(s->completion.stats.accepted) / static_cast<double>(proposed),
          drafter.num_fed()};
}

// Rows 34 and 35, and the proof that acceptance shows such mistakes.
TEST(BugCatalogue, AcceptanceShowsAWrongDraftCacheRows34And35) {
  using Mistake = RememberingDrafter::Mistake;
  const Acceptance right = AcceptanceWith(Mistake::kNone);
  EXPECT_EQ(right.rate, 1.0);
  EXPECT_LT(AcceptanceWith(Mistake::kHoleAfterFullAcceptance).rate, 0.8);
  EXPECT_LT(AcceptanceWith(Mistake::kKeepsRejected).rate, 0.8);
  // A draft whose cache is cut too far is correct but slow, which shows in the tokens that it is
  // fed.
  const Acceptance trimmed = AcceptanceWith(Mistake::kTrimsTwoTooMany);
  EXPECT_EQ(trimmed.rate, 1.0);
  EXPECT_GT(trimmed.num_fed, right.num_fed + right.num_fed / 4);
}

// Rows 34 to 36. After rounds with every outcome, the draft proposes what a fresh one would.
TEST(BugCatalogue, AUsedDraftProposesTheSameAsAFreshOneRows34To36) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 10; ++trial) {
    RoundModels models;
    const auto s = Start(
        &models, &models.drafter,
        {.prompt = RandomTokens(random, kSmallVocab, 5), .max_tokens = 120, .seed = random()});
    while (s->num_output() < 110 && !s->finished) {
      // Some rounds, often several in a row, have no draft.
      const int k = random() % 2 == 0 ? 0 : static_cast<int>(random() % 8);
      ASSERT_TRUE(models.Round(&models.drafter, s.get(), k).ok());
      if (random() % 4 != 0) continue;
      const auto propose = [&](DraftState* state) {
        Proposal proposal;
        Proposal* const proposals[] = {&proposal};
        const DraftRequest request{.context = s->tokens,
                                   .granted = 5,
                                   .sampling = &s->sampling,
                                   .random = s->random,
                                   .state = state};
        EXPECT_TRUE(models.drafter.Propose({&request, 1}, proposals).ok());
        models.drafter.Rollback(state, s->num_cacheable());
        return proposal;
      };
      const auto fresh = models.drafter.NewState({});
      const Proposal want = propose(fresh.get());
      const Proposal got = propose(s->draft_state.get());
      EXPECT_EQ(got.tokens, want.tokens);
      for (size_t i = 0; i < want.tokens.size(); ++i) {
        EXPECT_EQ(got.drawn_from[i].probs, want.drawn_from[i].probs);
      }
    }
  }
}

// ---- The tokens that models are fed ----

int TokensFed(FakeModel& model) {
  int count = 0;
  for (const auto& pass : model.passes()) {
    for (const FakeModel::Fed& fed : pass) count += static_cast<int>(fed.tokens.size());
  }
  return count;
}

// Row 37. If a rollback forgot more than the rejected tokens, those would be fed again.
TEST(BugCatalogue, NoCommittedTokenIsReadTwiceRow37) {
  std::mt19937_64 random(2);
  RoundModels models;
  const Ask ask{.prompt = RandomTokens(random, kSmallVocab, 9), .max_tokens = 200, .seed = 5};
  const auto s = Start(&models, &models.drafter, ask);
  int for_target = 0;
  int for_draft = 0;
  int cached = 0;  // tokens in the draft's cache
  while (!s->finished) {
    const int length = s->length();
    for_target += s->num_pending();
    ASSERT_TRUE(models.Round(&models.drafter, s.get(), 4).ok());
    const int k = static_cast<int>(s->proposal.tokens.size());
    for_target += k;
    if (k == 0) continue;
    // The draft is fed the tokens that its cache lacks, and its own tokens except the last. The
    // committed ones stay cached.
    for_draft += length - cached + k - 1;
    cached = std::min(length + k - 1, s->num_cacheable());
    EXPECT_EQ(s->num_pending(), 1);
  }
  EXPECT_EQ(TokensFed(models.target), for_target);
  EXPECT_EQ(TokensFed(models.draft), for_draft);
}

// Row 42. For the second request with a long prompt, the draft reads only the new tokens.
TEST(BugCatalogue, APublishedPromptIsNotReadAgainByTheDraftRow42) {
  std::mt19937_64 random(3);
  RoundModels models({.chunk_tokens = 16});
  const Tokens prompt = RandomTokens(random, kSmallVocab, 101);
  const auto run = [&](const Tokens& tokens) {
    auto s = Start(&models, &models.drafter, {.prompt = tokens, .max_tokens = 2});
    s->target_kv = models.target_cache->NewSequenceWithPrefix(tokens);
    models.draft.passes().clear();
    models.target.passes().clear();
    EXPECT_TRUE(models.Round(&models.drafter, s.get(), 1).ok());
    models.target_cache->Publish(s->tokens, &s->target_kv);
    models.drafter.Publish(s->draft_state.get(), s->tokens);
    return std::pair(TokensFed(models.target), TokensFed(models.draft));
  };
  EXPECT_EQ(run(prompt), std::pair(102, 101));
  EXPECT_EQ(run(prompt), std::pair(2, 1));  // 100 tokens are whole pages of both caches
  Tokens longer = prompt;
  longer.insert(longer.end(), {1, 2, 3});
  EXPECT_EQ(run(longer), std::pair(5, 4));
}

// ---- Failures ----

// Row 38. Any single pass of either model can fail: it leaves no trace, and the text is the same.
TEST(BugCatalogue, AFailureOfAnySinglePassLeavesNoTraceRow38) {
  std::mt19937_64 random(4);
  const Ask ask{.prompt = RandomTokens(random, kSmallVocab, 11), .max_tokens = 25, .seed = 7};
  RoundModels calm;
  const auto plain = Plain(ask, &calm);
  for (const bool in_draft : {false, true}) {
    int num_failed = 0;
    for (int failing = 0; failing < 60; ++failing) {
      SCOPED_TRACE(absl::StrCat(in_draft ? "draft" : "target", " pass ", failing));
      RoundModels models({.chunk_tokens = 3});
      (in_draft ? models.draft : models.target).options().fail_at = failing;
      const auto s = Start(&models, &models.drafter, ask);
      while (!s->finished) {
        const Tokens before = s->tokens;
        if (!models.Round(&models.drafter, s.get(), 4).ok()) {
          ASSERT_FALSE(in_draft);
          EXPECT_EQ(s->tokens, before);
          ++num_failed;
        }
        ASSERT_LE(s->target_kv.length(), s->num_cacheable());
        const Tokens cached = FakeModel::Contents(s->target_kv);
        ASSERT_TRUE(std::equal(cached.begin(), cached.end(), s->tokens.begin()));
        const KvSequence* const kvs[] = {&s->target_kv};
        ASSERT_TRUE(models.target_cache->CheckIntegrity(kvs).ok());
      }
      num_failed += static_cast<int>(s->completion.stats.draft_failures);
      EXPECT_EQ(s->tokens, plain->tokens);
    }
    EXPECT_GT(num_failed, 5);
  }
}

// ---- Batches ----

// Row 47. In batches of any size, the acceptance at each depth is the same as for each sequence
// alone.
TEST(BugCatalogue, AcceptancePerDepthIsTheSameInEveryBatchRow47) {
  const GoldenPair pair("shallow");
  std::vector<Request> requests;
  const std::vector<std::vector<TokenId>> prompts = PromptsFrom(pair.prompt_ids, 8);
  for (int i = 0; i < 32; ++i) {
    requests.push_back({.prompt_ids = prompts[i % 8],
                        .max_tokens = 12,
                        .sampling = {.temperature = i < 8 ? 0.0f : 0.9f},
                        .seed = static_cast<uint64_t>(i),
                        .ignore_eos = true,
                        .draft_tokens = 4});
  }
  std::vector<Completion> alone;
  for (const int max_batch : {1, 2, 7, 32}) {
    EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
    options.max_batch = max_batch;
    const std::vector<Completion> got = GenerateAll(MakeEngine(options).get(), requests);
    if (alone.empty()) alone = got;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("batch ", max_batch, " request ", i));
      ExpectSameOutput(got[i], alone[i]);
      ExpectSameCounts(got[i].stats, alone[i].stats);
    }
  }
}

}  // namespace
}  // namespace tandem
