// The bug catalogue (docs/bug_catalogue.md), section 2: which draft tokens are kept.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/judge_rows.h"
#include "tests/round_world.h"
#include "verify/acceptance.h"

namespace tandem {
namespace {

constexpr AcceptanceRule kSampledRules[] = {AcceptanceRule::kBlock, AcceptanceRule::kToken};

// ---- Random numbers ----

// Records the places at which a generation's random numbers were read.
class PlaceLog {
 public:
  // Returns false if this place was read before.
  bool Read(const RandomPlace& place) {
    return places_
        .insert({static_cast<uint32_t>(place.stream), place.position, place.slot, place.retry})
        .second;
  }
  int size() const { return static_cast<int>(places_.size()); }

 private:
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> places_;
};

// Repeats a round's judgement with the target's rows after `before` and the draft, and logs every
// random number that it reads. Expects that none was read before and that the round had the same
// result.
void ExpectRoundReadsNewNumbers(const FakeModel& target, const Session& s, const Tokens& before,
                                PlaceLog* log) {
  const auto n = static_cast<uint32_t>(before.size());
  const std::vector<TokenId>& drafted = s.proposal.tokens;
  const auto read = [&](RandomStream stream, uint32_t position, int slot) {
    const RandomPlace place{
        .stream = stream, .position = position, .slot = static_cast<uint32_t>(slot)};
    EXPECT_TRUE(log->Read(place)) << static_cast<int>(stream) << " " << position << " " << slot;
    return place;
  };
  if (s.rule != AcceptanceRule::kExactMatch) {
    for (int i = 0; i < static_cast<int>(drafted.size()); ++i) {
      const RandomPlace place = read(RandomStream::kDraft, n, i);
      EXPECT_EQ(drafted[i], Draw(s.proposal.drawn_from[i], s.random, place));
    }
  }
  std::vector<Distribution> rows(drafted.size() + 1);
  Tokens context = before;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(MakeDistribution(target.RowAfter(context), s.sampling, nullptr, &rows[i]).ok());
    if (i < drafted.size()) context.push_back(drafted[i]);
  }
  const Verdict verdict = *JudgeRows(
      s.rule, drafted, [&](int slot) -> absl::StatusOr<const Distribution*> { return &rows[slot]; },
      s.proposal.drawn_from,
      {[&](int slot) { return s.random.Uniform(read(RandomStream::kAccept, n, slot)); },
       [&](absl::Span<const float> weights, int slot) {
         return DrawFromWeights(weights, s.random, read(RandomStream::kResidual, n, slot));
       },
       [&](const Distribution& row, int slot) {
         return Draw(row, s.random, read(RandomStream::kTarget, n + slot, 0));
       }});
  Tokens after = before;
  after.insert(after.end(), drafted.begin(), drafted.begin() + verdict.num_accepted);
  after.push_back(verdict.next);
  EXPECT_EQ(s.tokens, after);
}

// Row 3. Draft lengths that change from round to round and include 0; failed passes, whose numbers
// are not used; preemption.
TEST(KnownFaults, NoRandomNumberIsReadTwice) {
  std::mt19937_64 random(1);
  for (const AcceptanceRule rule : kAllRules) {
    for (int trial = 0; trial < 10; ++trial) {
      RoundModels models;
      models.target.options().fail_every = trial % 2 == 0 ? 0 : 5;
      const auto s = Start(
          &models, &models.drafter,
          {.prompt = RandomTokens(random, kSmallVocab, 4), .max_tokens = 150, .seed = random()},
          rule);
      PlaceLog log;
      while (!s->finished) {
        if (random() % 20 == 0) s->target_kv.Truncate(0);
        const Tokens before = s->tokens;
        if (!models.Round(&models.drafter, s.get(), static_cast<int>(random() % 7)).ok()) continue;
        if (s->finished) break;  // a draft that reaches the end can be cut
        ASSERT_NO_FATAL_FAILURE(ExpectRoundReadsNewNumbers(models.target, *s, before, &log));
      }
      EXPECT_GT(log.size(), 100);
    }
  }
}

TEST(KnownFaults, APlaceReadTwiceIsSeen) {
  RoundModels models;
  const auto s = Start(&models, nullptr, {.prompt = {1, 2}});
  PlaceLog log;
  const Tokens before = s->tokens;
  ASSERT_TRUE(models.Round(nullptr, s.get(), 0).ok());
  ExpectRoundReadsNewNumbers(models.target, *s, before, &log);
  EXPECT_FALSE(log.Read(
      {.stream = RandomStream::kTarget, .position = static_cast<uint32_t>(before.size())}));
}

// A round that fails after drafting is retried with the same draft: drawn tokens are not drawn
// again, whatever the draft's length the second time.
TEST(KnownFaults, AFailedRoundIsRetriedWithTheSameDraft) {
  RoundModels models;
  const auto s = Start(&models, &models.drafter, {.prompt = {1, 2, 3}}, AcceptanceRule::kBlock);
  models.target.options().fail_every = 1;
  ASSERT_FALSE(models.Round(&models.drafter, s.get(), 6).ok());
  const Tokens drafted = s->proposal.tokens;
  ASSERT_EQ(drafted.size(), 6u);
  for (const int k : {6, 2, 4}) {
    ASSERT_FALSE(models.Round(&models.drafter, s.get(), k).ok());
    EXPECT_EQ(s->proposal.tokens, Prefix(drafted, k));
  }
}

// ---- One-hot drafts ----

// Returns P(at least i of two draft tokens are accepted), i = 1, 2, from a grid of coins. The grid
// finds each coin's threshold to within half a cell, so the error is at most 1 / kCells.
std::vector<double> AcceptanceOnAGrid(AcceptanceRule rule, const std::vector<Distribution>& target,
                                      const std::vector<Distribution>& draft,
                                      const Tokens& tokens) {
  constexpr int kCells = 200;
  std::vector<double> at_least(2, 0.0);
  for (int cell = 0; cell < kCells * kCells; ++cell) {
    const float coins[] = {(cell % kCells + 0.5f) / kCells, (cell / kCells + 0.5f) / kCells};
    const Verdict verdict = *JudgeRows(
        rule, tokens,
        [&](int slot) -> absl::StatusOr<const Distribution*> { return &target[slot]; }, draft,
        {[&](int slot) { return coins[slot]; }, [](absl::Span<const float>, int) { return 0; },
         [](const Distribution&, int) { return 0; }});
    for (int i = 0; i < verdict.num_accepted; ++i) at_least[i] += 1.0 / (kCells * kCells);
  }
  return at_least;
}

// Row 11. Deterministic drafts are one-hot, not "ratio 1". Both rules then accept slot i with the
// product of the target's probabilities up to it.
TEST(KnownFaults, BlockAndTokenRulesAgreeForOneHotDrafts) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<Distribution> target(3);
    for (Distribution& row : target) {
      for (const double p : RandomRow(random, 4, 16, 0.2)) row.probs.push_back(p);
    }
    const Tokens tokens = RandomTokens(random, 4, 2);
    const std::vector<Distribution> draft = {{.only = tokens[0], .probs = {}},
                                             {.only = tokens[1], .probs = {}}};
    const double first = target[0].probs[tokens[0]];
    const double both = first * target[1].probs[tokens[1]];
    for (const AcceptanceRule rule : kSampledRules) {
      const std::vector<double> got = AcceptanceOnAGrid(rule, target, draft, tokens);
      EXPECT_NEAR(got[0], first, 2.0 / 200) << NameOf(rule);
      EXPECT_NEAR(got[1], both, 2.0 / 200) << NameOf(rule);
    }
  }
}

// ---- Ids and counts in range ----

// Row 18. Vocabularies of many sizes, among them the largest in use. Padding lanes must not be
// drawn.
TEST(KnownFaults, IdsAndCountsAreInRangeForEveryVocabulary) {
  std::mt19937_64 random(3);
  for (const int vocab : {1, 2, 3, 5, 16, 17, 500, 32000, 128256}) {
    std::vector<Distribution> target(3);
    std::vector<Distribution> draft(2);
    for (auto* rows : {&target, &draft}) {
      for (Distribution& row : *rows) {
        std::vector<float> logits(vocab);
        for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100.0f;
        logits[vocab - 1] = 11.0f;  // the last id can be drawn like any other
        ASSERT_TRUE(MakeDistribution(logits, {}, nullptr, &row).ok());
      }
    }
    bool last_is_drawn = false;
    for (int seed = 0; seed < 40; ++seed) {
      const RandomSource source(seed);
      const Tokens tokens = {Draw(draft[0], source, {.stream = RandomStream::kDraft}),
                             Draw(draft[1], source, {.stream = RandomStream::kDraft, .slot = 1})};
      for (const AcceptanceRule rule : kAllRules) {
        const Verdict verdict = *JudgeRows(
            rule, tokens,
            [&](int slot) -> absl::StatusOr<const Distribution*> { return &target[slot]; }, draft,
            {[&](int slot) {
               return source.Uniform(
                   {.stream = RandomStream::kAccept, .slot = static_cast<uint32_t>(slot)});
             },
             [&](absl::Span<const float> weights, int slot) {
               return DrawFromWeights(
                   weights, source,
                   {.stream = RandomStream::kResidual, .slot = static_cast<uint32_t>(slot)});
             },
             [&](const Distribution& row, int slot) {
               return Draw(row, source, {.position = static_cast<uint32_t>(slot)});
             }});
        EXPECT_TRUE(0 <= verdict.next && verdict.next < vocab) << vocab << " " << verdict.next;
        EXPECT_TRUE(0 <= verdict.num_accepted && verdict.num_accepted <= 2);
        last_is_drawn = last_is_drawn || verdict.next == vocab - 1;
      }
    }
    EXPECT_TRUE(last_is_drawn || vocab > 500) << vocab;
  }
}

// Row 19. A batch that proposes nothing, and one in which no draft token is accepted.
TEST(KnownFaults, ABatchWithoutAcceptedTokens) {
  for (const AcceptanceRule rule : kAllRules) {
    for (const int k : {0, 1, 8}) {
      RoundModels models;
      std::vector<std::unique_ptr<Session>> sessions;
      // Token 0 is forbidden, and it is the only token that is proposed.
      FunctionDrafter drafter([](const DraftRequest& request, Proposal* proposal) {
        for (int i = 0; i < request.granted; ++i) Suggest(0, proposal);
      });
      for (TokenId first = 1; first < 7; ++first) {
        sessions.push_back(Start(&models, &drafter,
                                 {.prompt = {first},
                                  .sampling = {.top_k = 3, .logit_bias = {{0, -100.0f}}},
                                  .seed = static_cast<uint64_t>(first)},
                                 rule));
      }
      for (int round = 1; round <= 10; ++round) {
        std::vector<RoundStep> steps;
        for (const auto& s : sessions) steps.push_back({s.get(), s->num_pending(), k});
        ASSERT_TRUE(models.Round(&drafter, steps).ok());
        for (const auto& s : sessions) {
          ASSERT_EQ(s->num_output(), round);
          ASSERT_EQ(s->target_kv.length(), s->num_cacheable());
          EXPECT_EQ(s->completion.stats.accepted, 0);
          EXPECT_EQ(s->completion.stats.proposed, round * k);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
