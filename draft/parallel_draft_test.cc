// Tests of ModelDrafter with a mask token: all tokens of a draft from one pass.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "draft/model_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/drafter_world.h"
#include "tests/fake_sampler.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Tokens = std::vector<TokenId>;
using Sequence = DrafterWorld::Sequence;

constexpr TokenId kMask = 8;  // beyond the target's vocabulary

DrafterWorld::Options WithMask() { return {.model = {.vocab = 9}, .mask_token = kMask}; }

SamplingParams WithPenalties() {
  return {.temperature = 0.8f, .repetition_penalty = 1.3f, .presence_penalty = 0.25f};
}

TEST(ParallelDraft, ReadsTheTextAndTheMasksInOnePass) {
  DrafterWorld world(WithMask());
  Sequence* s = world.Add({1, 2, 3, 4, 5});
  const Tokens draft = world.Draft(s, 4);
  ASSERT_THAT(draft, SizeIs(4));
  world.ExpectDrawnAsRecorded(*s);
  ASSERT_THAT(world.model().passes(), SizeIs(1));
  EXPECT_THAT(world.model().passes()[0][0].tokens, ElementsAre(1, 2, 3, 4, 5, kMask, kMask, kMask));
  EXPECT_EQ(world.model().passes()[0][0].num_logits, 4);
  EXPECT_EQ(s->proposal.num_steps, 1);
  EXPECT_EQ(s->proposal.num_slots, 4);
  world.Learn(*s);
  EXPECT_EQ(world.Cached(*s), s->tokens);  // no mask
  // Three tokens are accepted. None was read as a token, so the next pass reads them all.
  s->tokens.insert(s->tokens.end(), draft.begin(), draft.begin() + 3);
  s->tokens.push_back(6);
  world.drafter().Rollback(s->state.get(), static_cast<int>(s->tokens.size()) - 1);
  EXPECT_EQ(world.drafter().Options(s->state.get(), s->tokens)[0].num_unread, 4);
  EXPECT_TRUE(world.drafter().Options(s->state.get(), s->tokens)[0].in_one_pass);
  world.model().passes().clear();
  world.Draft(s, 2);
  ASSERT_THAT(world.model().passes(), SizeIs(1));
  EXPECT_THAT(world.model().passes()[0][0].tokens,
              ElementsAre(draft[0], draft[1], draft[2], 6, kMask));
  EXPECT_EQ(world.model().passes()[0][0].start, 5);
}

TEST(ParallelDraft, DraftsForABatchWithDifferentLengthsInOnePass) {
  for (const bool on_device : {false, true}) {
    FakeSampler sampler;
    DrafterWorld::Options options = WithMask();
    options.model.sampler = on_device ? &sampler : nullptr;
    options.chunk_tokens = 64;
    DrafterWorld world(options);
    std::mt19937_64 random(1);
    const std::vector<int> lengths = {1, 0, 5, kMaxDraftTokens, 3};
    std::vector<Sequence*> batch;
    for (size_t i = 0; i < lengths.size(); ++i) {
      batch.push_back(world.Add(RandomTokens(random, kSmallVocab, 1 + 2 * static_cast<int>(i)),
                                i == 2 ? WithPenalties() : SamplingParams{}, i));
    }
    batch[4]->sampling = {.temperature = 0.0f};
    ASSERT_TRUE(world.Propose(batch, lengths).ok());
    // The sequence without a draft reads its text, then all others draft.
    ASSERT_THAT(world.model().passes(), SizeIs(2));
    EXPECT_THAT(world.model().passes()[1], SizeIs(4));
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_THAT(batch[i]->proposal.tokens, SizeIs(lengths[i])) << i;
      world.ExpectDrawnAsRecorded(*batch[i]);
    }
    if (!on_device) continue;
    EXPECT_EQ(sampler.num_collected(), 1);                    // one wait
    EXPECT_EQ(sampler.num_slots(), 1 + kMaxDraftTokens + 3);  // WithPenalties() needs the host
  }
}

// A draft of k tokens is the beginning of one of k + 1, and one of a single token is the serial
// draft's.
TEST(ParallelDraft, LongerDraftsBeginWithShorterOnes) {
  std::mt19937_64 random(2);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Tokens prompt = RandomTokens(random, kSmallVocab, 1 + static_cast<int>(seed));
    DrafterWorld serial({.model = {.vocab = 9}});
    Tokens shorter = serial.Draft(serial.Add(prompt, WithPenalties(), seed), 1);
    for (int k = 1; k <= 12; ++k) {
      DrafterWorld world(WithMask());
      const Tokens draft = world.Draft(world.Add(prompt, WithPenalties(), seed), k);
      ASSERT_THAT(draft, SizeIs(k));
      ASSERT_TRUE(std::equal(shorter.begin(), shorter.end(), draft.begin())) << seed << " " << k;
      shorter = draft;
    }
  }
}

TEST(ParallelDraft, EverySlotHasItsOwnNoise) {
  DrafterWorld::Options options = WithMask();
  options.model.shared = options.model.own = 0.0f;  // every row is uniform
  std::set<Tokens> drafts;
  int num_alike = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    DrafterWorld world(options);
    const Tokens draft = world.Draft(world.Add({1, 2}, {}, seed), 4);
    num_alike += std::set<TokenId>(draft.begin(), draft.end()).size() == 1 ? 1 : 0;
    drafts.insert(draft);
  }
  EXPECT_GT(drafts.size(), 45u);
  EXPECT_LT(num_alike, 4);  // of 1 in 343
}

// Masks take the pages that the unread tokens leave, and evict no other sequence.
TEST(ParallelDraft, ShrinksToThePagesThatAreLeft) {
  for (int num_pages = 3; num_pages <= 8; ++num_pages) {
    DrafterWorld::Options options = WithMask();
    options.num_pages = num_pages;
    DrafterWorld world(options);
    Sequence* first = world.Add({1, 2, 3, 4});
    Sequence* second = world.Add({5, 6, 0, 1});
    ASSERT_TRUE(world.Propose({first, second}, {8, 8}).ok());
    // Pages of three tokens: a text takes two, which leave room for two masks. The second text does
    // not fit into three pages.
    const auto expected = [](int pages) { return std::min(8, 3 + 3 * pages); };
    const bool both = num_pages >= 4;
    const int left = num_pages - (both ? 4 : 2);
    EXPECT_THAT(first->proposal.tokens, SizeIs(expected(left))) << num_pages;
    EXPECT_THAT(second->proposal.tokens, SizeIs(both ? expected(std::max(left - 2, 0)) : 0));
    world.ExpectDrawnAsRecorded(*first);
    world.ExpectDrawnAsRecorded(*second);
    ASSERT_TRUE(world.drafter().CheckIntegrity().ok());
  }
}

TEST(ParallelDraft, ReadsLongTextsInChunksThatLeaveRoomForTheMasks) {
  for (const int k : {1, 3, 8, 12}) {
    for (int length = 1; length < 30; ++length) {
      std::mt19937_64 random(3);
      DrafterWorld world(WithMask());  // chunks of 8
      Sequence* s = world.Add(RandomTokens(random, kSmallVocab, length));
      ASSERT_THAT(world.Draft(s, k), SizeIs(k));
      world.ExpectDrawnAsRecorded(*s);
      const auto& passes = world.model().passes();
      for (size_t i = 0; i + 1 < passes.size(); ++i) {
        EXPECT_LE(passes[i][0].tokens.size(), 8u);
        EXPECT_EQ(passes[i][0].num_logits, 0);
      }
      EXPECT_LE(static_cast<int>(passes.back()[0].tokens.size()), std::max(8, k));
      EXPECT_EQ(passes.back()[0].num_logits, k);
    }
  }
}

TEST(ParallelDraft, AnInvalidRowEndsTheDraft) {
  FakeSampler sampler;
  for (const bool on_device : {false, true}) {
    DrafterWorld::Options options = WithMask();
    options.model.sampler = on_device ? &sampler : nullptr;
    options.model.poisoned = [](absl::Span<const TokenId> context) {
      return context.size() == 5 && context.back() == kMask;
    };
    DrafterWorld world(options);
    Sequence* s = world.Add({1, 2, 3});
    EXPECT_THAT(world.Draft(s, 5), SizeIs(2));
    world.Learn(*s);
    EXPECT_EQ(world.Cached(*s), s->tokens);
  }
}

TEST(ParallelDraft, ReportsAFailureOfTheDeviceWithoutKeepingMasks) {
  FakeSampler sampler;
  DrafterWorld::Options options = WithMask();
  options.model.sampler = &sampler;
  DrafterWorld world(options);
  Sequence* s = world.Add({1, 2, 3});
  world.Draft(s, 2);
  world.Learn(*s);
  sampler.set_fail_at(sampler.num_calls());
  EXPECT_FALSE(world.Propose({s}, {4}).ok());
  EXPECT_EQ(world.Cached(*s), s->tokens);
}

// The length follows from all rows, which are known before the first draw, and never from a drawn
// token. Rows of masks have their own curve.
TEST(ParallelDraft, EndsBeforeAnUnlikelySlot) {
  ConfidenceCurve curve;
  for (int i = 0; i < 500; ++i) {
    for (int bucket = 0; bucket < 10; ++bucket) {
      curve.Observe(static_cast<float>(bucket) / 10 + 0.05f, true);
      curve.Observe(static_cast<float>(bucket) / 10 + 0.05f, i % 2 == 0, /*is_mask=*/true);
    }
  }
  // The first slot is kept with certainty, and each further one half of the time.
  for (const auto& [min_for_row, length] : std::map<double, size_t>{{0.3, 2}, {0.2, 3}, {0.1, 4}}) {
    DrafterWorld world(WithMask());
    Sequence* s = world.Add({1, 2, 3});
    s->stop = {.curve = &curve, .min_for_row = min_for_row};
    EXPECT_THAT(world.Draft(s, 8), SizeIs(length));
    EXPECT_TRUE(s->proposal.has_stopped);
    EXPECT_EQ(s->proposal.num_steps, 1);
    EXPECT_EQ(s->proposal.num_slots, 8);
    world.ExpectDrawnAsRecorded(*s);
  }
}

TEST(ParallelDraft, ReadsAlongWithoutMasks) {
  DrafterWorld world(WithMask());
  Sequence* s = world.Add({1, 2, 3, 4});
  EXPECT_THAT(world.Draft(s, 0), IsEmpty());
  ASSERT_THAT(world.model().passes(), SizeIs(1));
  EXPECT_THAT(world.model().passes()[0][0].tokens, ElementsAre(1, 2, 3, 4));
}

// Pages of serial and of parallel use hold the same bits, so either can begin where the other
// published.
TEST(ParallelDraft, PublishesPagesOfTextAlone) {
  DrafterWorld world(WithMask());
  std::mt19937_64 random(3);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 20);
  Sequence* first = world.Add(prompt);
  const Tokens draft = world.Draft(first, 6);
  world.drafter().Rollback(first->state.get(), 19);
  world.drafter().Publish(first->state.get(), first->tokens);
  Sequence* second = world.Add(prompt);
  world.model().passes().clear();
  EXPECT_EQ(world.Draft(second, 6), draft);
  EXPECT_EQ(world.model().passes()[0][0].start, 18);
}

}  // namespace
}  // namespace tandem
