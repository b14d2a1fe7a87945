#include "draft/head_drafter.h"

#include <algorithm>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "draft/make_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/drafter_world.h"
#include "tests/fake_head.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::IsEmpty;

constexpr int kPage = 3;
constexpr int kStates = 2;

// Simulates sequences of a target with a head.
class HeadWorld {
 public:
  struct Options {
    FakeHead::Options head{};
    int num_pages = 200;
    int chunk_tokens = 5;
    int rows_late = 0;  // a planted fault: reads the states of rows this much further on
  };
  using Sequence = DraftedText;

  HeadWorld() : HeadWorld(Options()) {}
  explicit HeadWorld(const Options& options)
      : options_(options),
        cache_(kPage, options.num_pages, /*num_layers=*/2, kStates),
        target_(cache_.get(), {.state_size = kStates}),
        head_(cache_.get(), options.head),
        drafter_({.head = &head_,
                  .target = &target_,
                  .backend = cache_.backend(),
                  .page_size = kPage,
                  .target_vocab_size = 7,
                  .chunk_tokens = options.chunk_tokens}) {}

  Sequence* Add(std::vector<TokenId> tokens, DrafterKind kind = DrafterKind::kHead) {
    sequences_.push_back({.tokens = std::move(tokens)});
    Sequence* s = &sequences_.back();
    s->kv = cache_->NewSequenceWithPrefix(s->tokens);
    s->state = drafter_.NewStateOf(kind, {}, nullptr);
    drafter_.AdoptLongerPrefix(s->state.get(), s->tokens, s->kv);
    return s;
  }

  // Part of a round for one sequence: the target reads `num_fed` committed tokens, and the proposal
  // too if no committed token is left unread. Then `kept` is committed in place of the proposal.
  struct Step {
    Sequence* s;
    int num_fed;
    std::vector<TokenId> kept = {};
  };
  absl::Status Round(const std::vector<Step>& steps) {
    std::vector<std::vector<TokenId>> fed(steps.size());
    std::vector<ForwardRequest> passes;
    std::vector<Drafter::TargetRows> rows;
    int row = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      Sequence& s = *steps[i].s;
      const auto begin = s.tokens.begin() + s.kv.length();
      fed[i].assign(begin, begin + steps[i].num_fed);
      if (begin + steps[i].num_fed == s.tokens.end()) {
        fed[i].insert(fed[i].end(), s.proposal.tokens.begin(), s.proposal.tokens.end());
      }
      rows.push_back({.state = s.state.get(),
                      .kv = &s.kv,
                      .first_position = s.kv.length(),
                      .first_row = std::max(row + options_.rows_late, 0)});
      row += static_cast<int>(fed[i].size());
      passes.push_back({.tokens = fed[i], .kv = &s.kv, .num_logits = 0});
    }
    if (const absl::Status status = target_.Forward(passes).status(); !status.ok()) return status;
    for (size_t i = 0; i < steps.size(); ++i) {
      Sequence& s = *steps[i].s;
      s.tokens.insert(s.tokens.end(), steps[i].kept.begin(), steps[i].kept.end());
      const int most = static_cast<int>(s.tokens.size()) - (steps[i].kept.empty() ? 0 : 1);
      s.kv.Truncate(std::min(s.kv.length(), most));
      drafter_.Rollback(s.state.get(), most);
      rows[i].tokens = s.tokens;
    }
    return drafter_.ReadStates(rows);
  }
  // Reads all but the last token, in chunks.
  void Read(Sequence* s, int chunk = 4) {
    for (;;) {
      const int left = static_cast<int>(s->tokens.size()) - 1 - s->kv.length();
      if (left == 0) return;
      ASSERT_TRUE(Round({{.s = s, .num_fed = std::min(left, chunk)}}).ok());
    }
  }

  absl::Status Propose(const std::vector<Sequence*>& sequences, const std::vector<int>& granted) {
    return ProposeFor(drafter_, sequences, granted);
  }
  std::vector<TokenId> Draft(Sequence* s, int granted) {
    const absl::Status status = Propose({s}, {granted});
    EXPECT_TRUE(status.ok()) << status;
    return s->proposal.tokens;
  }
  bool CanDraft(const Sequence& s) { return !drafter_.Options(s.state.get(), s.tokens).empty(); }

  // Returns the layer's entries for all but the first of `tokens`, computed from the target's
  // states.
  std::vector<float> PlacesOf(absl::Span<const TokenId> tokens) {
    std::vector<float> places;
    for (size_t i = 1; i < tokens.size(); ++i) {
      places.push_back(head_.RowOf(places, tokens[i], target_.StateAfter(tokens.first(i))).place);
    }
    return places;
  }
  // Returns the draft after the tokens of `s`, by definition.
  std::vector<TokenId> Expected(const Sequence& s, int granted) {
    std::vector<float> places = PlacesOf(absl::MakeConstSpan(s.tokens).first(s.tokens.size() - 1));
    std::vector<float> state =
        target_.StateAfter(absl::MakeConstSpan(s.tokens).first(s.tokens.size() - 1));
    std::vector<TokenId> drafted;
    TokenId token = s.tokens.back();
    while (static_cast<int>(drafted.size()) < granted) {
      const FakeHead::Row row = head_.RowOf(places, token, state);
      places.push_back(row.place);
      state = {row.own_state};
      std::vector<float> logits = row.logits;
      if (const auto ids = head_.head_ids(); !ids.empty()) {
        logits.assign(7, -std::numeric_limits<float>::infinity());
        for (size_t i = 0; i < ids.size(); ++i) logits[ids[i]] = row.logits[i];
      }
      Distribution distribution;
      EXPECT_TRUE(MakeDistribution(logits, s.sampling, nullptr, &distribution).ok());
      token = Draw(distribution, s.random,
                   {.stream = RandomStream::kDraft,
                    .position = static_cast<uint32_t>(s.tokens.size()),
                    .slot = static_cast<uint32_t>(drafted.size())});
      drafted.push_back(token);
    }
    return drafted;
  }
  void ExpectPagesHoldLayer(const Sequence& s) {
    const int end = s.kv.length() / kPage * kPage;
    ASSERT_TRUE(drafter_.HoldsFullPages(*s.state, s.kv));
    EXPECT_EQ(head_.Places(s.kv, end), PlacesOf(absl::MakeConstSpan(s.tokens).first(end)));
    for (int page = 0; page < end / kPage; ++page) {
      const float* state = cache_->StateOf(s.kv.pages()[page]);
      EXPECT_EQ(std::vector<float>(state, state + kStates),
                target_.StateAfter(absl::MakeConstSpan(s.tokens).first((page + 1) * kPage)));
    }
  }
  void ExpectIntegrity() {
    std::vector<const KvSequence*> kvs;
    for (const Sequence& s : sequences_) kvs.push_back(&s.kv);
    EXPECT_TRUE(cache_->CheckIntegrity(kvs).ok());
  }

  FakeCache& cache() { return cache_; }
  FakeHead& head() { return head_; }
  HeadDrafter& drafter() { return drafter_; }

 private:
  Options options_;
  FakeCache cache_;
  FakeModel target_;
  FakeHead head_;
  HeadDrafter drafter_;
  std::deque<Sequence> sequences_;  // stable addresses
};

std::vector<TokenId> Text(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  return RandomTokens(random, kSmallVocab, count);
}

TEST(HeadDrafter, DraftsFromTheTargetsStatesAndThenFromItsOwn) {
  HeadWorld world({.num_pages = 2000});
  for (int length = 2; length <= 14; ++length) {
    for (const float temperature : {0.0f, 0.8f}) {
      for (int granted = 1; granted <= 8; ++granted) {
        HeadWorld::Sequence* s = world.Add(Text(length, length));
        s->sampling.temperature = temperature;
        world.Read(s, /*chunk=*/1 + length % 5);
        EXPECT_EQ(world.Draft(s, granted), world.Expected(*s, granted)) << length;
        world.ExpectPagesHoldLayer(*s);
      }
    }
  }
  world.ExpectIntegrity();
}

TEST(HeadDrafter, DetectsStatesOfAnotherRow) {
  HeadWorld world({.rows_late = -1});
  HeadWorld::Sequence* first = world.Add(Text(1, 9));
  HeadWorld::Sequence* s = world.Add(Text(2, 9));
  ASSERT_TRUE(world.Round({{.s = first, .num_fed = 8}, {.s = s, .num_fed = 8}}).ok());
  EXPECT_NE(world.Draft(s, 8), world.Expected(*s, 8));
}

TEST(HeadDrafter, DropsDraftedRowsAfterEveryRound) {
  for (int granted = 1; granted <= 7; ++granted) {
    for (int kept = 0; kept <= granted; ++kept) {
      HeadWorld world;
      HeadWorld::Sequence* s = world.Add(Text(granted, 5));
      world.Read(s);
      for (int round = 0; round < 6; ++round) {
        ASSERT_EQ(world.Draft(s, granted), world.Expected(*s, granted));
        std::vector<TokenId> tokens(s->proposal.tokens.begin(), s->proposal.tokens.begin() + kept);
        tokens.push_back(3);
        ASSERT_TRUE(world.Round({{.s = s, .num_fed = 1, .kept = tokens}}).ok());
        world.ExpectPagesHoldLayer(*s);
        world.cache()->Publish(s->tokens, &s->kv);
      }
      world.ExpectIntegrity();
    }
  }
}

TEST(HeadDrafter, KeepsStatesForLaterDraftsInRoundsWithoutDrafts) {
  HeadWorld world;
  HeadWorld::Sequence* s = world.Add(Text(3, 4));
  world.Read(s);
  for (int round = 0; round < 12; ++round) {
    s->proposal.Clear();
    ASSERT_TRUE(world.Round({{.s = s, .num_fed = 1, .kept = {round % 7}}}).ok());
    world.ExpectPagesHoldLayer(*s);
    if (round % 5 == 4) {
      EXPECT_EQ(world.Draft(s, 4), world.Expected(*s, 4));
    }
  }
}

TEST(HeadDrafter, DraftsTheSameInABatchAsAlone) {
  HeadWorld world;
  std::vector<HeadWorld::Sequence*> sequences;
  std::vector<int> granted;
  for (int i = 0; i < 6; ++i) {
    sequences.push_back(world.Add(Text(i, 3 + 2 * i)));
    world.Read(sequences.back());
    granted.push_back(i == 2 ? 0 : 1 + (i * 5) % 8);
  }
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(world.Propose(sequences, granted).ok());
    std::vector<HeadWorld::Step> steps;
    for (size_t i = 0; i < sequences.size(); ++i) {
      HeadWorld::Sequence* s = sequences[i];
      EXPECT_EQ(s->proposal.tokens, world.Expected(*s, granted[i]));
      const auto drafted = s->proposal.tokens;
      const size_t kept = std::min<size_t>((i + round) % 4, drafted.size());
      std::vector<TokenId> tokens(drafted.begin(), drafted.begin() + kept);
      tokens.push_back(static_cast<TokenId>((i + round) % 7));
      steps.push_back({.s = s, .num_fed = 1, .kept = tokens});
    }
    ASSERT_TRUE(world.Round(steps).ok());
    for (const HeadWorld::Sequence* s : sequences) world.ExpectPagesHoldLayer(*s);
  }
  world.ExpectIntegrity();
}

TEST(HeadDrafter, DraftsTheSameAfterASharedPrefix) {
  const std::vector<TokenId> text = Text(8, 14);
  for (const DrafterKind kind : {DrafterKind::kHead, DrafterKind::kNone}) {
    HeadWorld world;
    HeadWorld::Sequence* first = world.Add(text, kind);
    world.Read(first);
    EXPECT_EQ(world.CanDraft(*first), kind == DrafterKind::kHead);
    world.ExpectPagesHoldLayer(*first);
    world.cache()->Publish(first->tokens, &first->kv);
    for (int length = 2; length <= 14; ++length) {
      HeadWorld::Sequence* s = world.Add(std::vector<TokenId>(text.begin(), text.begin() + length));
      EXPECT_EQ(s->kv.length(), (length - 1) / kPage * kPage);
      world.Read(s);
      EXPECT_EQ(world.Draft(s, 6), world.Expected(*s, 6));
      world.ExpectPagesHoldLayer(*s);
    }
    world.ExpectIntegrity();
  }
}

TEST(HeadDrafter, ProposesOnlyTokensOfItsHeadByTargetId) {
  HeadWorld world({.head = {.head_ids = {1, 4, 5}}});
  HeadWorld::Sequence* s = world.Add(Text(9, 8));
  s->sampling.temperature = 1.0f;
  world.Read(s);
  EXPECT_EQ(world.Draft(s, 8), world.Expected(*s, 8));
  for (const TokenId token : s->proposal.tokens)
    EXPECT_THAT((std::vector{1, 4, 5}), testing::Contains(token));
}

TEST(HeadDrafter, FailedDraftLosesNothing) {
  HeadWorld world;
  HeadWorld::Sequence* s = world.Add(Text(4, 9));
  world.Read(s);
  for (int step = 0; step < 4; ++step) {
    world.head().options().fail_at = world.head().num_passes() + step;
    EXPECT_FALSE(world.Propose({s}, {4}).ok());
    s->proposal.Clear();
    ASSERT_TRUE(world.Round({{.s = s, .num_fed = 1, .kept = {2}}}).ok());
    EXPECT_EQ(world.Draft(s, 4), world.Expected(*s, 4));
  }
  world.ExpectIntegrity();
}

TEST(HeadDrafter, FailedReadStopsDraftsAndPublishingUntilEviction) {
  HeadWorld world;
  HeadWorld::Sequence* s = world.Add(Text(4, 9));
  world.head().options().fail_at = world.head().num_passes();
  ASSERT_FALSE(world.Round({{.s = s, .num_fed = 4}}).ok());
  EXPECT_FALSE(world.drafter().HoldsFullPages(*s->state, s->kv));
  world.Read(s);
  EXPECT_FALSE(world.drafter().HoldsFullPages(*s->state, s->kv));
  EXPECT_FALSE(world.CanDraft(*s));
  EXPECT_THAT(world.Draft(s, 4), IsEmpty());
  s->kv.Truncate(0);
  world.drafter().Evict(s->state.get());
  world.Read(s);
  EXPECT_EQ(world.Draft(s, 4), world.Expected(*s, 4));
  world.ExpectPagesHoldLayer(*s);
}

TEST(HeadDrafter, NeedsStatesContextAndPages) {
  HeadWorld world({.head = {.context_length = 12}, .num_pages = 4});
  HeadWorld::Sequence* s = world.Add(Text(6, 10));
  EXPECT_FALSE(world.CanDraft(*s));  // its prompt has not been read
  world.Read(s);
  EXPECT_EQ(world.drafter().Options(s->state.get(), s->tokens)[0].max_tokens, 3);
  EXPECT_EQ(world.Draft(s, 8).size(), 3);
  HeadWorld::Sequence* one = world.Add({1});
  EXPECT_FALSE(world.CanDraft(*one));  // no earlier token has a state
  s->kv.Truncate(0);
  world.drafter().Evict(s->state.get());
  // `last` holds two of the four pages, `other` one.
  HeadWorld::Sequence* other = world.Add(Text(5, 3));
  world.Read(other);
  HeadWorld::Sequence* last = world.Add(Text(7, 6));
  world.Read(last);
  EXPECT_EQ(world.Draft(last, 6), world.Expected(*last, 4));
  world.ExpectIntegrity();
}

TEST(HeadDrafter, MakeDrafterMakesHeadDrafters) {
  FakeCache cache(kPage, /*num_pages=*/4, /*num_layers=*/2, kStates);
  FakeModel target(cache.get(), {.state_size = kStates});
  FakeHead head(cache.get(), {});
  const DrafterParts parts{.model = &head,
                           .cache = cache.get(),
                           .target = &target,
                           .backend = cache.backend(),
                           .target_vocab_size = 7};
  const auto name_of = [&](DrafterKind kind) {
    const auto drafter = MakeDrafter(kind, parts);
    return drafter.ok() ? std::string((*drafter)->name()) : std::string(drafter.status().message());
  };
  EXPECT_EQ(name_of(DrafterKind::kHead), "eagle3");
  EXPECT_EQ(name_of(DrafterKind::kHeadAndNgram), "eagle3+ngram");
  EXPECT_EQ(name_of(DrafterKind::kAuto), "eagle3+ngram");
  EXPECT_EQ(name_of(DrafterKind::kNgram), "ngram");
  EXPECT_EQ(name_of(DrafterKind::kModel), "eagle3");
  EXPECT_EQ(name_of(DrafterKind::kModelAndNgram), "eagle3+ngram");
  EXPECT_EQ(MakeDrafter(DrafterKind::kHeadAndNgram, {}).status().message(),
            "drafter: \"eagle3+ngram\" needs a draft head, but no draft is given");
  EXPECT_TRUE((*MakeEveryDrafter(DrafterKind::kNgram, parts))->shares_target_cache());
}

}  // namespace
}  // namespace tandem
