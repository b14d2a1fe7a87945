#include "verify/verifier.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/judge_rows.h"
#include "tests/verify_world.h"

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;
using World = VerifyWorld;
using Sequence = VerifySequence;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

bool SameHistory(const TokenHistory& a, const TokenHistory& b) {
  return a.counts().size() == b.counts().size() &&
         std::all_of(a.counts().begin(), a.counts().end(), [&b](const auto& entry) {
           const auto it = b.counts().find(entry.first);
           return it != b.counts().end() && it->second.in_output == entry.second.in_output;
         });
}

// ---- Verdicts ----

// Judges with the rows that each prefix implies, and with noise from the places that base/philox.h
// defines. Collects these in `places`.
using Place = std::tuple<uint32_t, uint32_t, uint32_t>;
Verdict Expected(const World& world, const Sequence& s, std::multiset<Place>* places) {
  std::vector<Distribution> rows;
  for (size_t i = 0; i <= s.proposal.tokens.size(); ++i) {
    rows.push_back(world.TargetRow(s, static_cast<int>(i)));
  }
  const auto n = static_cast<uint32_t>(s.context.size());
  const auto place = [&](RandomStream stream, uint32_t position, uint32_t slot) {
    places->insert({static_cast<uint32_t>(stream), position, slot});
    return RandomPlace{.stream = stream, .position = position, .slot = slot};
  };
  const auto coin = [&](int slot) {
    return s.random.Uniform(place(RandomStream::kAccept, n, slot));
  };
  const auto residual = [&](absl::Span<const float> weights, int slot) {
    return DrawFromWeights(weights, s.random, place(RandomStream::kResidual, n, slot));
  };
  const auto choose = [&](const Distribution& row, int slot) {
    return Draw(row, s.random, place(RandomStream::kTarget, n + slot, 0));
  };
  return *JudgeRows(s.rule, s.proposal.tokens,
                    [&](int slot) -> absl::StatusOr<const Distribution*> { return &rows[slot]; },
                    s.proposal.drawn_from, {coin, residual, choose});
}

// Long generations under every rule and setting: each verdict equals the judge's with the right
// rows, history and noise. No random number is read twice, including those of drafts.
TEST(Verifier, JudgesWithTheRightRowsAndNoise) {
  const SamplingParams params[] = {
      {}, {.temperature = 0.0f}, {.temperature = 0.6f, .top_k = 4}, {.top_p = 0.7f}, Penalized()};
  std::mt19937_64 random(1);
  int num_accepted = 0;
  int num_rejected = 0;
  for (const AcceptanceRule rule : kAllRules) {
    for (const SamplingParams& sampling : params) {
      World world;
      Sequence* s = world.Add(RandomTokens(random, kSmallVocab, 4), sampling, random());
      s->rule = rule;
      std::multiset<Place> places;
      for (int round = 0; round < 60; ++round) {
        const int k = static_cast<int>(random() % 6);
        world.Propose(s, k);
        for (int i = 0; i < k; ++i) {
          places.insert({static_cast<uint32_t>(RandomStream::kDraft), s->context.size(), i});
        }
        const TokenHistory history = s->history;
        const VerifyResult result = world.Verify(s);
        ASSERT_TRUE(result.status.ok() && result.judged);
        const Verdict expected = Expected(world, *s, &places);
        ASSERT_EQ(result.verdict.num_accepted, expected.num_accepted);
        ASSERT_EQ(result.verdict.next, expected.next);
        EXPECT_TRUE(SameHistory(s->history, history));
        EXPECT_THAT(result.logprobs, IsEmpty());
        // The cache holds all tokens fed, before rejected ones are truncated.
        Tokens fed = s->context;
        fed.insert(fed.end(), s->proposal.tokens.begin(), s->proposal.tokens.end());
        ASSERT_EQ(FakeModel::Contents(s->kv), fed);
        num_accepted += expected.num_accepted;
        num_rejected += k - expected.num_accepted;
        fed.resize(s->context.size() + expected.num_accepted);
        fed.push_back(expected.next);
        for (size_t i = s->context.size(); i < fed.size(); ++i) s->history.AddOutput(fed[i]);
        s->context = fed;
        s->kv.Truncate(std::min(s->kv.length(), static_cast<int>(fed.size()) - 1));
      }
      for (const Place& place : places) EXPECT_EQ(places.count(place), 1u) << NameOf(rule);
    }
  }
  EXPECT_GT(num_accepted, 500);
  EXPECT_GT(num_rejected, 500);
}

TEST(Verifier, FeedsOnlyTokensThatTheCacheLacks) {
  World world;
  Sequence* s = world.Add({1, 2, 3, 4, 5});
  EXPECT_FALSE(world.Verify(s, 2).judged);
  EXPECT_EQ(s->kv.length(), 2);
  EXPECT_FALSE(world.Verify(s, 2).judged);
  world.Propose(s, 3);
  EXPECT_TRUE(world.Verify(s, 1).judged);
  EXPECT_EQ(s->kv.length(), 8);
  std::vector<int> rows;
  for (const auto& pass : world.model().passes()) rows.push_back(pass[0].num_logits);
  EXPECT_EQ(rows, (std::vector{0, 0, 4}));
}

// One pass serves sequences that decode, speculate and read their prompts. Each has the same result
// as alone.
TEST(Verifier, JudgesTheSameInABatchAsAlone) {
  std::mt19937_64 random(2);
  std::vector<Tokens> contexts;
  for (int i = 0; i < 6; ++i) contexts.push_back(RandomTokens(random, kSmallVocab, 2 + i));
  const auto add_all = [&](World* world) {
    std::vector<Sequence*> sequences;
    for (int i = 0; i < 6; ++i) {
      Sequence* s = world->Add(contexts[i], i % 2 == 0 ? SamplingParams() : Penalized(), i);
      s->rule = kAllRules[i % 3];
      if (i != 4) world->Propose(s, i);
      s->logprobs.num_top = 2;
      sequences.push_back(s);
    }
    return sequences;
  };
  // The fifth sequence reads only a part of its prompt.
  const auto fed = [&](int i) { return i == 4 ? 3 : static_cast<int>(contexts[i].size()); };
  World alone;
  std::vector<VerifyResult> expected;
  const std::vector<Sequence*> singles = add_all(&alone);
  for (int i = 0; i < 6; ++i) expected.push_back(alone.Verify(singles[i], fed(i)));
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  for (int trial = 0; trial < 20; ++trial) {
    World world;
    const std::vector<Sequence*> sequences = add_all(&world);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Sequence*> batch;
    std::vector<int> num_fed;
    for (const int i : order) {
      batch.push_back(sequences[i]);
      num_fed.push_back(fed(i));
    }
    std::vector<VerifyResult> results;
    ASSERT_TRUE(world.Verify(batch, &results, num_fed).ok());
    EXPECT_THAT(world.model().passes(), SizeIs(1));
    for (int j = 0; j < 6; ++j) {
      const VerifyResult& one = expected[order[j]];
      EXPECT_EQ(results[j].judged, order[j] != 4);
      EXPECT_EQ(results[j].verdict.num_accepted, one.verdict.num_accepted);
      EXPECT_EQ(results[j].verdict.next, one.verdict.next);
      ASSERT_EQ(results[j].logprobs.size(), one.logprobs.size());
      for (size_t t = 0; t < one.logprobs.size(); ++t) {
        EXPECT_EQ(results[j].logprobs[t].logprob, one.logprobs[t].logprob);
      }
    }
  }
}

// ---- Log-probabilities ----

TEST(Verifier, ReportsLogprobsOfTheRowsThatDecided) {
  std::mt19937_64 random(3);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World world;
    Sequence* s = world.Add(RandomTokens(random, kSmallVocab, 5), Penalized(), seed);
    s->rule = kAllRules[seed % 3];
    s->logprobs = {.num_top = static_cast<int>(seed % 4), .processed = seed % 2 == 0};
    world.Propose(s, 4);
    const VerifyResult result = world.Verify(s);
    const int accepted = result.verdict.num_accepted;
    ASSERT_THAT(result.logprobs, SizeIs(accepted + 1));
    Tokens context = s->context;
    for (int i = 0; i <= accepted; ++i) {
      const TokenId token = i < accepted ? s->proposal.tokens[i] : result.verdict.next;
      const TokenLogprobs expected =
          s->logprobs.processed
              ? LogprobsOf(world.TargetRow(*s, i), token, s->logprobs.num_top)
              : LogprobsOf(world.model().RowAfter(context), token, s->logprobs.num_top);
      EXPECT_EQ(result.logprobs[i].id, token);
      EXPECT_EQ(result.logprobs[i].logprob, expected.logprob);
      EXPECT_EQ(result.logprobs[i].top, expected.top);
      context.push_back(token);
    }
  }
}

TEST(Verifier, ReportsPromptLogprobsOnceForEveryChunking) {
  std::mt19937_64 random(4);
  for (int length = 1; length < 12; ++length) {
    const Tokens prompt = RandomTokens(random, kSmallVocab, length);
    for (int chunk = 1; chunk <= length; ++chunk) {
      World world;
      Sequence* s = world.Add(prompt);
      s->prompt_logprobs.num_top = 2;
      world.Propose(s, 2);
      const Proposal proposal = s->proposal;
      std::vector<TokenLogprobs> reported;
      bool judged = false;
      while (s->num_pending() > 0) {
        const int num_fed = std::min(chunk, s->num_pending());
        s->proposal = num_fed == s->num_pending() ? proposal : Proposal();
        VerifyResult result = world.Verify(s, num_fed);
        judged = result.judged;
        for (TokenLogprobs& logprobs : result.prompt_logprobs) {
          reported.push_back(std::move(logprobs));
        }
        if (judged) break;
      }
      EXPECT_TRUE(judged);
      ASSERT_EQ(static_cast<int>(reported.size()), length - 1) << chunk;
      for (int t = 1; t < length; ++t) {
        const TokenLogprobs expected =
            LogprobsOf(world.model().RowAfter(absl::MakeConstSpan(prompt).first(t)), prompt[t], 2);
        EXPECT_EQ(reported[t - 1].id, prompt[t]);
        EXPECT_EQ(reported[t - 1].logprob, expected.logprob);
        EXPECT_EQ(reported[t - 1].top, expected.top);
      }
    }
  }
}

// ---- Failures ----

TEST(Verifier, InvalidRowFailsOnlyItsRequest) {
  int num_seen = 0;
  for (uint64_t seed = 0; seed < 30 * 12; ++seed) {
    const AcceptanceRule rule = kAllRules[seed % 3];
    const int bad_row = static_cast<int>(seed / 3 % 4);
    World world;
    world.model().options().poisoned = [&](absl::Span<const TokenId> context) {
      return context[0] == 1 && static_cast<int>(context.size()) == 4 + bad_row;
    };
    Sequence* bad = world.Add({1, 2, 3, 4}, Penalized(), seed);
    Sequence* good = world.Add({2, 2, 3, 4}, Penalized());
    for (Sequence* s : {bad, good}) {
      s->rule = rule;
      s->logprobs.num_top = 0;
      world.Propose(s, 3);
    }
    const TokenHistory history = bad->history;
    std::vector<VerifyResult> results;
    ASSERT_TRUE(world.Verify({bad, good}, &results).ok());
    EXPECT_TRUE(SameHistory(bad->history, history));
    EXPECT_EQ(bad->kv.length(), 7);
    EXPECT_EQ(good->kv.length(), 7);
    EXPECT_TRUE(results[1].status.ok() && results[1].judged);
    // Plain decoding never sees a row after the rejection. The tokens before the bad row are judged
    // as if no more had been proposed.
    world.model().options().poisoned = nullptr;
    std::multiset<Place> unused;
    bad->proposal.tokens.resize(std::min<size_t>(bad_row, 3));
    const Verdict verdict = Expected(world, *bad, &unused);
    const bool is_seen = verdict.num_accepted == bad_row;
    num_seen += is_seen;
    EXPECT_EQ(results[0].status.ok(), !is_seen);
    EXPECT_TRUE(results[0].judged);
    EXPECT_EQ(results[0].verdict.num_accepted, verdict.num_accepted);
    EXPECT_THAT(results[0].logprobs, SizeIs(verdict.num_accepted + (is_seen ? 0 : 1)));
    if (is_seen) {
      EXPECT_EQ(results[0].status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(results[0].status.message()),
                  HasSubstr(absl::StrCat("position ", 4 + bad_row)));
    } else {
      EXPECT_EQ(results[0].verdict.next, verdict.next);
    }
  }
  EXPECT_GT(num_seen, 60);
}

// A wrong draft must only cost speed. Every rule rejects an invalid id like a token with
// probability 0 for the target, and the id is not fed.
TEST(Verifier, RejectsDraftTokensOutsideTheVocabulary) {
  const SamplingParams params[] = {{}, {.temperature = 0.0f}, Penalized()};
  const TokenId illegal[] = {-1, -5, kSmallVocab, kSmallVocab + 1000, INT_MIN, INT_MAX};
  int num_kept = 0;
  for (const AcceptanceRule rule : kAllRules) {
    for (const SamplingParams& sampling : params) {
      for (size_t i = 0; i < 6 * std::size(illegal); ++i) {
        const int place = static_cast<int>(i % 3);
        World world;
        Sequence* s = world.Add({1, 2, 3, 4}, sampling, i);
        s->rule = rule;
        s->logprobs.num_top = 1;
        world.Propose(s, 3);
        Distribution& q = s->proposal.drawn_from[place];
        s->proposal.tokens[place] = illegal[i / 6];
        q.probs.clear();
        q.only = illegal[i / 6];
        const VerifyResult result = world.Verify(s);
        ASSERT_TRUE(result.status.ok() && result.judged) << result.status;
        EXPECT_LE(result.verdict.num_accepted, place);
        EXPECT_TRUE(0 <= result.verdict.next && result.verdict.next < kSmallVocab);
        EXPECT_EQ(s->kv.length(), 4 + place);
        EXPECT_EQ(world.model().passes().back()[0].num_logits, place + 1);
        EXPECT_EQ(static_cast<int>(result.logprobs.size()), result.verdict.num_accepted + 1);
        num_kept += result.verdict.num_accepted;
      }
    }
  }
  EXPECT_GT(num_kept, 50);  // tokens before it may be kept
}

TEST(Verifier, ChecksTheNumberOfDraftTokens) {
  World world;
  Sequence* s = world.Add({1, 2, 3});
  world.Propose(s, 1);
  s->proposal.tokens.resize(kMaxDraftTokens + 1, 0);
  s->proposal.drawn_from.resize(kMaxDraftTokens + 1, s->proposal.drawn_from[0]);
  EXPECT_DEATH(world.Verify(s), "check failed");
}

TEST(Verifier, LeavesEveryCacheUnchangedOnErrors) {
  for (const int cause : {0, 1, 2}) {
    World world({.context_length = cause == 1 ? 7 : 100}, cause == 2 ? 4 : 100);
    Sequence* first = world.Add({1, 2, 3});
    Sequence* second = world.Add({3, 2, 1, 0, 4});
    world.Propose(first, 2);
    world.Propose(second, 3);
    ASSERT_TRUE(first->kv.Extend(1).ok());
    world.model().options().fail_every = cause == 0 ? 1 : 0;
    std::vector<VerifyResult> results;
    const absl::Status status = world.Verify({first, second}, &results);
    EXPECT_EQ(status.code(), cause == 0   ? absl::StatusCode::kInternal
                             : cause == 1 ? absl::StatusCode::kOutOfRange
                                          : absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(first->kv.length(), 1);
    EXPECT_EQ(second->kv.length(), 0);
    EXPECT_EQ(world.cache()->num_free_pages(), world.cache()->num_pages() - 1);
  }
}

TEST(Verifier, ChecksTheNumberOfTokensToFeed) {
  World world;
  Sequence* s = world.Add({1, 2, 3});
  EXPECT_DEATH(world.Verify(s, 0), "check failed");
  EXPECT_DEATH(world.Verify(s, 4), "check failed");
}

// Rows after a rejection are not part of the text, but they show which token would follow.
TEST(Verifier, ReportsTheLikeliestTokensAfterRejectedOnes) {
  std::mt19937_64 random(2);
  World world;
  Sequence* s = world.Add(RandomTokens(random, kSmallVocab, 4), {.temperature = 0.0f}, 1);
  s->rule = AcceptanceRule::kExactMatch;
  int num_told = 0;
  for (int round = 0; round < 20; ++round) {
    world.Propose(s, 4);
    s->wants_rejected = round % 2 == 0;
    const int length_before = s->kv.length();
    const VerifyResult result = world.Verify(s);
    const int num_accepted = result.verdict.num_accepted;
    const int num_rejected = s->wants_rejected ? 4 - num_accepted : 0;
    ASSERT_THAT(result.likeliest_after_rejected, SizeIs(num_rejected));
    for (int i = 0; i < num_rejected; ++i, ++num_told) {
      EXPECT_EQ(result.likeliest_after_rejected[i], world.TargetRow(*s, num_accepted + 1 + i).only);
    }
    s->kv.Truncate(length_before);
    s->random = RandomSource(round + 10);
  }
  EXPECT_GT(num_told, 10);
}

}  // namespace
}  // namespace tandem
