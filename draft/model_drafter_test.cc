#include "draft/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/drafter_world.h"
#include "tests/fake_sampler.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Tokens = std::vector<TokenId>;

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

SamplingParams Penalized() {
  return {.temperature = 0.8f,
          .repetition_penalty = 1.3f,
          .frequency_penalty = 0.5f,
          .presence_penalty = 0.25f};
}

// ---- Ending early ----

// The place of the end depends on rows alone: the tokens are a prefix of the draft that does not
// end early, and the confidences of the rows up to there explain it.
TEST(ModelDrafter, EndsADraftAtRowsOfLowConfidence) {
  const ConfidenceCurve curve;
  for (const float temperature : {0.0f, 0.8f}) {
    DrafterWorld world;
    std::mt19937_64 random(7);
    int num_early = 0;
    int num_whole = 0;
    for (int i = 0; i < 60; ++i) {
      const Tokens prompt = RandomTokens(random, kSmallVocab, 6);
      const uint64_t seed = random();
      DrafterWorld::Sequence* whole = world.Add(prompt, {.temperature = temperature}, seed);
      DrafterWorld::Sequence* early = world.Add(prompt, {.temperature = temperature}, seed);
      early->stop = {.curve = &curve, .min_for_row = 0.3, .min_for_step = 0.2};
      const Tokens all = world.Draft(whole, 6);
      ASSERT_THAT(all, SizeIs(6));
      ASSERT_THAT(whole->proposal.confidences, SizeIs(6));
      EXPECT_FALSE(whole->proposal.has_stopped);
      const Tokens some = world.Draft(early, 6);
      world.ExpectDrawnAsRecorded(*early);

      DraftSurvival survival(early->stop);
      size_t length = 0;
      int num_steps = 0;
      while (length < 6) {
        ++num_steps;
        if (!survival.Takes(whole->proposal.confidences[length])) break;
        ++length;
        if (length == 6 || !survival.GoesOn()) break;
      }
      EXPECT_EQ(some, Tokens(all.begin(), all.begin() + length));
      EXPECT_EQ(early->proposal.num_steps, num_steps);
      EXPECT_EQ(early->proposal.has_stopped, length < 6);
      (length < 6 ? num_early : num_whole) += 1;
      // Forgets the drafted rows.
      world.drafter().Rollback(early->state.get(), static_cast<int>(prompt.size()));
    }
    EXPECT_GT(num_early, 5) << temperature;
    RecordProperty("whole", num_whole);
  }
}

// ---- Lengths ----

// Random rounds of a batch: draft lengths from 0 on, random acceptance, evictions, rounds without a
// draft, failures, and a draft context shorter than the text. After every draft the cache holds the
// context and all proposed tokens but the last, or in one pass the context: every mask has left it.
// After every round, and after a failure, it holds committed tokens only. Freed pages are poisoned,
// so a row that read a dropped slot would not be the expected one.
TEST(ModelDrafter, KeepsItsCacheCorrectOverRandomRounds) {
  FakeSampler sampler;
  for (int way = 0; way < 8; ++way) {
    const int context_length = way % 2 == 0 ? 1 << 20 : 60;
    const bool in_one_pass = way >= 4;
    DrafterWorld::Options options{.model = {.context_length = context_length,
                                            .sampler = way / 2 % 2 == 0 ? nullptr : &sampler}};
    if (in_one_pass) {
      options.model.vocab = 9;
      options.mask_token = 8;  // beyond the target's vocabulary
    }
    DrafterWorld world(options);
    std::mt19937_64 random(static_cast<uint64_t>(context_length));
    std::vector<DrafterWorld::Sequence*> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(world.Add(RandomTokens(random, kSmallVocab, 5 + i),
                              i == 1 ? Penalized() : SamplingParams(), random()));
      world.Draft(all.back(), 1);
      world.Learn(*all.back());
      world.drafter().Rollback(all.back()->state.get(), 0);
    }
    int num_full_drafts = 0;
    int num_failures = 0;
    for (int round = 0; round < 400; ++round) {
      std::vector<DrafterWorld::Sequence*> asked;
      std::vector<int> max_tokens;
      for (DrafterWorld::Sequence* s : all) {
        if (random() % 20 == 0) world.drafter().Evict(s->state.get());
        if (random() % 20 == 0) {
          world.drafter().Rollback(s->state.get(), static_cast<int>(random() % s->tokens.size()));
        }
        if (random() % 4 == 0) continue;  // this round speculates without it
        asked.push_back(s);
        max_tokens.push_back(static_cast<int>(random() % 9));
      }
      FillFreePages(world.cache().get(), round % 2 == 0 ? NAN : 1e30f);
      world.model().options().fail_every = random() % 10 == 0 ? 2 : 0;
      const bool drafted = world.Propose(asked, max_tokens).ok();
      if (world.model().options().fail_every == 0) {
        ASSERT_TRUE(drafted);
      }
      num_failures += drafted ? 0 : 1;
      for (size_t i = 0; i < asked.size(); ++i) {
        DrafterWorld::Sequence& s = *asked[i];
        const int n = static_cast<int>(s.tokens.size());
        if (!drafted) {
          Tokens cached = world.Cached(s);
          ASSERT_LE(cached.size(), s.tokens.size());
          ASSERT_TRUE(std::equal(cached.begin(), cached.end(), s.tokens.begin())) << round;
          continue;
        }
        const int room = std::max(0, context_length - n + 1);
        const int k = std::min(max_tokens[i], room);
        ASSERT_THAT(s.proposal.tokens, SizeIs(n > context_length ? 0 : k));
        world.ExpectDrawnAsRecorded(s);
        if (n > context_length) continue;
        Tokens expected = in_one_pass ? s.tokens : Joined(s.tokens, s.proposal.tokens);
        if (k > 0 && !in_one_pass) expected.pop_back();
        ASSERT_EQ(world.Cached(s), expected) << "round " << round;
        num_full_drafts += k > 0;
      }
      for (DrafterWorld::Sequence* s : all) {
        const bool was_asked = std::find(asked.begin(), asked.end(), s) != asked.end();
        const int k = drafted && was_asked ? static_cast<int>(s->proposal.tokens.size()) : 0;
        const int accepted = k == 0 ? 0 : static_cast<int>(random() % (k + 1));
        const int n = static_cast<int>(s->tokens.size());
        for (int i = 0; i <= accepted; ++i) {
          const TokenId token =
              i < accepted ? s->proposal.tokens[i] : static_cast<TokenId>(random() % 7);
          s->tokens.push_back(token);
          s->history.AddOutput(token);
        }
        const int committed = static_cast<int>(s->tokens.size());
        const int length_before = world.KvOf(*s)->length();
        world.drafter().Rollback(s->state.get(), committed - 1);
        const Tokens cached = world.Cached(*s);
        ASSERT_EQ(static_cast<int>(cached.size()), std::min(length_before, committed - 1));
        ASSERT_TRUE(std::equal(cached.begin(), cached.end(), s->tokens.begin()));
        if (k > 0 && !in_one_pass) {
          // The cache lags by one exactly after a full acceptance.
          EXPECT_EQ(static_cast<int>(cached.size()), n - 1 + std::min(k, accepted + 1));
        }
      }
      if (static_cast<int>(all[0]->tokens.size()) > 90) {  // the next requests
        for (DrafterWorld::Sequence* s : all) {
          s->tokens.resize(5);
          s->history = TokenHistory();
          s->history.AddPrompt(s->tokens);
          world.drafter().Rollback(s->state.get(), 4);
        }
      }
    }
    EXPECT_GT(num_full_drafts, 300);
    EXPECT_GT(num_failures, 3);
  }
}

TEST(ModelDrafter, ReadsEveryTokenOnce) {
  DrafterWorld world;
  DrafterWorld::Sequence* s = world.Add({1, 2, 3, 4, 5});
  Tokens draft = world.Draft(s, 4);
  ASSERT_THAT(world.model().passes(), SizeIs(4));  // a pass per token
  EXPECT_THAT(world.model().passes()[0][0].tokens, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(world.model().passes()[1][0].tokens, ElementsAre(draft[0]));
  EXPECT_THAT(world.model().passes()[3][0].tokens, ElementsAre(draft[2]));
  // All tokens are accepted. The last was never read, so the next draft begins with it.
  s->tokens = Joined(s->tokens, draft);
  s->tokens.push_back(6);
  world.drafter().Rollback(s->state.get(), static_cast<int>(s->tokens.size()) - 1);
  world.model().passes().clear();
  world.Draft(s, 1);
  ASSERT_THAT(world.model().passes(), SizeIs(1));
  EXPECT_THAT(world.model().passes()[0][0].tokens, ElementsAre(draft[3], 6));
  EXPECT_EQ(world.model().passes()[0][0].start, 8);
}

TEST(ModelDrafter, DraftsForABatchInOnePassPerToken) {
  DrafterWorld world;
  std::mt19937_64 random(1);
  std::vector<DrafterWorld::Sequence*> batch;
  for (int i = 0; i < 4; ++i)
    batch.push_back(world.Add(RandomTokens(random, kSmallVocab, 1 + 2 * i)));
  ASSERT_TRUE(world.Propose(batch, {3, 1, 0, 2}).ok());
  // The chunk of the sequence without a draft comes first, then the steps.
  std::vector<size_t> sizes;
  for (const auto& pass : world.model().passes()) sizes.push_back(pass.size());
  EXPECT_THAT(sizes, ElementsAre(1, 3, 2, 1));
  EXPECT_EQ(world.model().passes()[0][0].num_logits, 0);
  for (int i = 0; i < 4; ++i)
    EXPECT_THAT(batch[i]->proposal.tokens, SizeIs(std::vector{3, 1, 0, 2}[i]));
}

// When granted no tokens it reads the context that it is given, in chunks and without logits. A
// later draft only has to read the new tokens.
TEST(ModelDrafter, ReadsPromptsInChunksWithTheTarget) {
  DrafterWorld world({.model = {}, .chunk_tokens = 4});
  std::mt19937_64 random(2);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 19);
  DrafterWorld::Sequence* s = world.Add({});
  for (const int shown : {3, 8, 19}) {
    s->tokens.assign(prompt.begin(), prompt.begin() + shown);
    EXPECT_THAT(world.Draft(s, 0), IsEmpty());
    world.Learn(*s);
    EXPECT_EQ(world.Cached(*s), s->tokens);
  }
  for (const auto& pass : world.model().passes()) {
    EXPECT_LE(pass[0].tokens.size(), 4u);
    EXPECT_EQ(pass[0].num_logits, 0);
  }
  world.drafter().Rollback(s->state.get(), 18);
  world.model().passes().clear();
  world.Draft(s, 1);
  EXPECT_THAT(world.model().passes(), SizeIs(1));
  world.ExpectDrawnAsRecorded(*s);
  // A draft for an unread prompt catches up in chunks too; the last chunk is the first step.
  DrafterWorld::Sequence* late = world.Add(prompt);
  world.model().passes().clear();
  world.Draft(late, 1);
  std::vector<size_t> sizes;
  for (const auto& pass : world.model().passes()) sizes.push_back(pass[0].tokens.size());
  EXPECT_THAT(sizes, ElementsAre(4, 4, 4, 4, 3));
  EXPECT_EQ(late->proposal.tokens, s->proposal.tokens);
}

TEST(ModelDrafter, StartsFromPublishedPrefixes) {
  DrafterWorld world;
  std::mt19937_64 random(3);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 20);
  DrafterWorld::Sequence* first = world.Add(prompt);
  const Tokens draft = world.Draft(first, 4);
  world.drafter().Rollback(first->state.get(), 19);
  world.drafter().Publish(first->state.get(), first->tokens);
  DrafterWorld::Sequence* second = world.Add(prompt);
  world.model().passes().clear();
  EXPECT_EQ(world.Draft(second, 4), draft);
  EXPECT_EQ(world.model().passes()[0][0].start, 18);
}

// A published prefix may be longer than the part of the prompt that the target has read so far.
TEST(ModelDrafter, SkipsChunksWithinACachedPrefix) {
  for (const int target_vocab : {7, 9}) {
    DrafterWorld world({.model = {}, .target_vocab = target_vocab});
    std::mt19937_64 random(3);
    const Tokens prompt = RandomTokens(random, kSmallVocab, 20);
    DrafterWorld::Sequence* first = world.Add(prompt);
    world.Draft(first, 1);
    world.drafter().Publish(first->state.get(), first->tokens);
    DrafterWorld::Sequence* second = world.Add(prompt);
    world.model().passes().clear();
    second->tokens.resize(4);
    EXPECT_THAT(world.Draft(second, 0), IsEmpty());
    EXPECT_THAT(world.model().passes(), IsEmpty());
    second->tokens = prompt;
    EXPECT_THAT(world.Draft(second, 3), SizeIs(3));
    EXPECT_EQ(world.model().passes()[0][0].start, 18);
  }
}

// ---- Proposals ----

TEST(ModelDrafter, RecordsTheDistributionsItDrewFrom) {
  const SamplingParams params[] = {{},
                                   {.temperature = 0.0f},
                                   {.temperature = 0.5f, .top_k = 3},
                                   {.top_p = 0.6f},
                                   {.min_p = 0.4f},
                                   Penalized(),
                                   {.temperature = 0.0f, .presence_penalty = 1.0f},
                                   {.logit_bias = {{2, 4.0f}, {6, -100.0f}}}};
  for (const DraftNoise noise : {DraftNoise::kOwn, DraftNoise::kTargets}) {
    for (const SamplingParams& sampling : params) {
      DrafterWorld world;
      std::mt19937_64 random(4);
      for (uint64_t seed = 0; seed < 20; ++seed) {
        DrafterWorld::Sequence* s = world.Add(RandomTokens(random, kSmallVocab, 9), sampling, seed);
        s->noise = noise;
        s->history.AddOutput(3);
        const TokenHistory history = s->history;
        ASSERT_THAT(world.Draft(s, 6), SizeIs(6));
        world.ExpectDrawnAsRecorded(*s);
        EXPECT_TRUE(SameHistory(s->history, history));
      }
    }
  }
}

TEST(ModelDrafter, NeverProposesTokensUnknownToTheTarget) {
  DrafterWorld world({.model = {.vocab = 9}, .target_vocab = 4});
  std::mt19937_64 random(5);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    DrafterWorld::Sequence* s = world.Add(RandomTokens(random, 4, 5), {}, seed);
    for (const TokenId token : world.Draft(s, 5)) EXPECT_LT(token, 4);
    world.ExpectDrawnAsRecorded(*s);
    for (int i = 0; i < 5; ++i) EXPECT_THAT(s->proposal.drawn_from[i].probs, SizeIs(4));
  }
}

// A draft with a smaller vocabulary drafts while it can read the text, with rows of its own size.
// It proposes nothing from the first unknown token on.
TEST(ModelDrafter, ProposesNothingAfterAnUnknownToken) {
  DrafterWorld world({.model = {.vocab = 5}, .target_vocab = 7});
  SamplingParams sampling = Penalized();
  sampling.logit_bias = {{6, 3.0f}, {1, 0.5f}};
  DrafterWorld::Sequence* s = world.Add({1, 2, 3, 4}, sampling);
  s->history.AddOutput(6);  // a token that the draft's rows do not contain
  EXPECT_THAT(world.Draft(s, 3), SizeIs(3));
  EXPECT_THAT(s->proposal.drawn_from[0].probs, SizeIs(5));
  world.ExpectDrawnAsRecorded(*s);
  world.drafter().Rollback(s->state.get(), 4);
  s->tokens = {1, 2, 3, 4, 6, 1};
  EXPECT_THAT(world.Draft(s, 3), IsEmpty());
  EXPECT_THAT(world.Draft(s, 0), IsEmpty());
  s->tokens = {1, 2, 3, 4, 0};
  EXPECT_THAT(world.Draft(s, 3), SizeIs(3));
}

TEST(ModelDrafter, StopsAtItsContextLimit) {
  for (int n = 1; n < 12; ++n) {
    DrafterWorld world({.model = {.context_length = 8}});
    std::mt19937_64 random(6);
    DrafterWorld::Sequence* s = world.Add(RandomTokens(random, kSmallVocab, n));
    const int room = std::max(0, 8 - n + 1);
    EXPECT_THAT(world.Draft(s, 5), SizeIs(n > 8 ? 0 : std::min(5, room))) << n;
    EXPECT_THAT(world.Draft(world.Add(RandomTokens(random, kSmallVocab, n)), 0), IsEmpty());
  }
}

TEST(ModelDrafter, ProposesLessWhenPagesRunOut) {
  DrafterWorld world({.model = {}, .page_size = 2, .num_pages = 9});
  DrafterWorld::Sequence* first = world.Add({1, 2, 3, 4, 5});
  DrafterWorld::Sequence* second = world.Add({5, 4, 3, 2, 1});
  DrafterWorld::Sequence* third = world.Add({1, 1, 1, 1, 1});
  // The prompts and one more token take 3 pages each. No pages are left for longer drafts.
  ASSERT_TRUE(world.Propose({first, second, third}, {8, 8, 8}).ok());
  EXPECT_THAT(first->proposal.tokens, SizeIs(2));
  EXPECT_THAT(second->proposal.tokens, SizeIs(2));
  EXPECT_THAT(third->proposal.tokens, SizeIs(2));
  for (DrafterWorld::Sequence* s : {first, second, third}) {
    world.ExpectDrawnAsRecorded(*s);
    world.drafter().Rollback(s->state.get(), 4);
  }
  // A fourth sequence finds no free pages.
  DrafterWorld::Sequence* fourth = world.Add({2, 2, 2, 2, 2, 2, 2});
  world.Propose({first, second, third}, {1, 1, 1}).IgnoreError();
  EXPECT_THAT(world.Draft(fourth, 4), IsEmpty());
  EXPECT_THAT(world.Draft(fourth, 0), IsEmpty());
  // It gets the pages of evicted sequences.
  world.drafter().Evict(first->state.get());
  world.drafter().Evict(second->state.get());
  EXPECT_THAT(world.Draft(fourth, 4), SizeIs(4));
  world.ExpectDrawnAsRecorded(*fourth);
  // If two sequences compete, the first in the batch gets the pages.
  world.drafter().Evict(fourth->state.get());
  world.drafter().Evict(third->state.get());
  ASSERT_TRUE(world.Propose({first, second}, {16, 16}).ok());
  EXPECT_GE(first->proposal.tokens.size(), second->proposal.tokens.size());
  EXPECT_GT(second->proposal.tokens.size(), 2u);
  world.ExpectDrawnAsRecorded(*first);
  world.ExpectDrawnAsRecorded(*second);
}

// Two texts grow until each holds half of the pool and needs a page: the younger one gives its
// pages back, the older one continues. When that has ended, the younger one drafts again.
TEST(ModelDrafter, GivesPagesToTheOldest) {
  DrafterWorld world({.model = {}, .page_size = 3, .num_pages = 10});
  DrafterWorld::Sequence* older = world.Add({1, 2, 3, 4});
  DrafterWorld::Sequence* younger = world.Add({4, 3, 2, 1});
  const auto round = [&](std::vector<DrafterWorld::Sequence*> sequences) {
    std::vector<int> wanted;
    for (DrafterWorld::Sequence* s : sequences) {
      wanted.push_back(world.drafter().Options(s->state.get(), s->tokens).empty() ? 0 : 2);
    }
    // As in a round: sequences without options are not asked.
    std::vector<DrafterWorld::Sequence*> asked;
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i]->proposal.Clear();
      if (wanted[i] > 0) asked.push_back(sequences[i]);
    }
    EXPECT_TRUE(world.Propose(asked, std::vector<int>(asked.size(), 2)).ok());
    EXPECT_TRUE(world.drafter().CheckIntegrity().ok());
    for (DrafterWorld::Sequence* s : sequences) {
      world.ExpectDrawnAsRecorded(*s);
      s->tokens.push_back(5);
      world.drafter().Rollback(s->state.get(), static_cast<int>(s->tokens.size()) - 1);
    }
  };
  int rounds_without = 0;
  while (older->tokens.size() < 28) {
    round({older, younger});
    EXPECT_FALSE(older->proposal.tokens.empty()) << older->tokens.size();
    if (younger->proposal.tokens.empty()) {
      ++rounds_without;
      EXPECT_EQ(world.drafter().NumCached(*younger->state), 0);
    } else {
      EXPECT_EQ(rounds_without, 0);  // no thrashing
    }
  }
  EXPECT_GT(rounds_without, 8);
  older->state.reset();
  round({younger});
  EXPECT_THAT(younger->proposal.tokens, SizeIs(2));
}

// Two younger texts hold 6 pages together, 4 of them shared. The older one lacks 7 pages, so
// evicting them would not help.
TEST(ModelDrafter, EvictsOnlyIfThatFreesEnoughPages) {
  DrafterWorld world({.model = {}, .page_size = 3, .num_pages = 12});
  DrafterWorld::Sequence* oldest = world.Add({1, 2, 3, 4, 5, 6});
  DrafterWorld::Sequence* older = world.Add(Tokens(29, 1));
  const Tokens shared = {6, 5, 4, 3, 2, 1, 6, 5, 4, 3, 2, 1, 3};
  DrafterWorld::Sequence* younger = world.Add(shared);
  ASSERT_TRUE(world.Propose({oldest, younger}, {2, 1}).ok());
  world.drafter().Publish(younger->state.get(), younger->tokens);
  DrafterWorld::Sequence* youngest = world.Add(shared);
  EXPECT_EQ(world.drafter().NumCached(*youngest->state), 12);
  ASSERT_TRUE(world.Propose({youngest}, {1}).ok());
  EXPECT_EQ(world.cache()->num_available_pages(), 12 - 3 - 6);
  EXPECT_THAT(world.drafter().Options(older->state.get(), older->tokens), IsEmpty());
  older->tokens.resize(27);  // 9 pages: those of the two younger texts suffice
  EXPECT_THAT(world.drafter().Options(older->state.get(), older->tokens), SizeIs(1));
  ASSERT_TRUE(world.Propose({older}, {1}).ok());
  EXPECT_THAT(older->proposal.tokens, SizeIs(1));
  EXPECT_EQ(world.drafter().NumCached(*youngest->state), 0);
}

// A state keeps its age when it adopts a prefix that another sequence published.
TEST(ModelDrafter, AdoptsPrefixesPublishedLater) {
  DrafterWorld world({.model = {}, .page_size = 3, .num_pages = 100});
  const Tokens text = {1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1};
  DrafterWorld::Sequence* a = world.Add(text);
  DrafterWorld::Sequence* b = world.Add(Tokens(text.begin(), text.begin() + 7));
  ASSERT_TRUE(world.Propose({b}, {0}).ok());
  world.drafter().Publish(b->state.get(), b->tokens);
  EXPECT_EQ(world.drafter().NumCached(*a->state), 0);
  world.drafter().AdoptLongerPrefix(a->state.get(), a->tokens, KvSequence());
  EXPECT_EQ(world.drafter().NumCached(*a->state), 6);
  ASSERT_TRUE(world.Propose({a}, {1}).ok());
  EXPECT_EQ(world.drafter().NumCached(*a->state), 11);
  world.drafter().AdoptLongerPrefix(a->state.get(), a->tokens, KvSequence());
  EXPECT_EQ(world.drafter().NumCached(*a->state), 11);  // its own prefix is longer
  world.ExpectDrawnAsRecorded(*a);
}

TEST(ModelDrafter, InvalidRowEndsTheDraft) {
  for (int good = 0; good < 4; ++good) {
    DrafterWorld world;
    DrafterWorld::Sequence* bad = world.Add({1, 2, 3, 4}, Penalized());
    DrafterWorld::Sequence* other = world.Add({2, 2, 3, 4});
    const TokenHistory history = bad->history;
    world.Draft(bad, 6);  // leaves stale distributions in the proposal
    world.drafter().Rollback(bad->state.get(), 3);
    world.model().options().poisoned = [good](absl::Span<const TokenId> context) {
      return context[0] == 1 && static_cast<int>(context.size()) == 4 + good;
    };
    ASSERT_TRUE(world.Propose({bad, other}, {6, 6}).ok());
    EXPECT_THAT(bad->proposal.tokens, SizeIs(good));
    EXPECT_THAT(other->proposal.tokens, SizeIs(6));
    EXPECT_TRUE(SameHistory(bad->history, history));
    world.ExpectDrawnAsRecorded(*bad);
    world.ExpectDrawnAsRecorded(*other);
  }
}

// With the target's noise and the target's rows, the draft is the tokens that the target will
// choose.
TEST(ModelDrafter, ProposesTheTargetsChoicesIfItIsTheTarget) {
  DrafterWorld world;
  DrafterWorld::Sequence* s = world.Add({3, 1, 4, 1, 5}, {.temperature = 0.9f, .top_k = 5}, 77);
  s->noise = DraftNoise::kTargets;
  Tokens chosen = s->tokens;
  for (int i = 0; i < 8; ++i) {
    Distribution p;
    ASSERT_TRUE(MakeDistribution(world.model().RowAfter(chosen), s->sampling, nullptr, &p).ok());
    chosen.push_back(Draw(p, s->random, {.position = static_cast<uint32_t>(chosen.size())}));
  }
  EXPECT_EQ(Joined(s->tokens, world.Draft(s, 8)), chosen);
}

TEST(ModelDrafter, DraftsTheSameInEveryBatch) {
  std::mt19937_64 random(8);
  std::vector<Tokens> prompts;
  for (int i = 0; i < 6; ++i) prompts.push_back(RandomTokens(random, kSmallVocab, 1 + i * 4));
  std::vector<Tokens> alone;
  for (int i = 0; i < 6; ++i) {
    DrafterWorld world;
    alone.push_back(world.Draft(world.Add(prompts[i], {}, i), 1 + i));
  }
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  for (int trial = 0; trial < 20; ++trial) {
    DrafterWorld world;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<DrafterWorld::Sequence*> batch;
    std::vector<int> max_tokens;
    for (const int i : order) {
      batch.push_back(world.Add(prompts[i], {}, i));
      max_tokens.push_back(1 + i);
    }
    ASSERT_TRUE(world.Propose(batch, max_tokens).ok());
    for (int j = 0; j < 6; ++j) EXPECT_EQ(batch[j]->proposal.tokens, alone[order[j]]);
  }
}

TEST(ModelDrafter, ReportsAFailureOfTheModel) {
  DrafterWorld world;
  DrafterWorld::Sequence* s = world.Add({1, 2, 3});
  const Tokens draft = world.Draft(s, 4);
  world.drafter().Rollback(s->state.get(), 2);
  world.model().options().fail_every = 3;
  EXPECT_THAT(std::string(world.Propose({s}, {4}).message()), HasSubstr("injected"));
  world.drafter().Rollback(s->state.get(), 2);
  world.model().options().fail_every = 0;
  EXPECT_EQ(world.Draft(s, 4), draft);
}

}  // namespace
}  // namespace tandem
