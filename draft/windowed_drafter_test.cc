
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "draft/make_drafter.h"
#include "draft/model_drafter.h"
#include "draft/tenants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/drafter_world.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::ElementsAreArray;
using testing::Le;
using testing::SizeIs;

using Tokens = std::vector<TokenId>;

constexpr int kSinks = DraftWindow::kSinks;

// Returns `tokens` without `num_skipped` of them after the sinks.
Tokens Windowed(const Tokens& tokens, int num_skipped) {
  Tokens seen = tokens;
  if (num_skipped > 0) {
    seen.erase(seen.begin() + kSinks, seen.begin() + kSinks + num_skipped);
  }
  return seen;
}

// A draft model with a window, and the sequences that it drafts for.
class WindowWorld {
 public:
  using Sequence = DraftedText;

  explicit WindowWorld(const DraftWindow& window, FakeModel::Options model = {}, int page_size = 3,
                       TokenId mask_token = kNoMaskToken)
      : cache_(page_size, 2000),
        model_(cache_.get(), std::move(model)),
        drafter_(*MakeDrafter(DrafterKind::kModel, {.model = &model_,
                                                    .cache = cache_.get(),
                                                    .target_vocab_size = kSmallVocab,
                                                    .chunk_tokens = 8,
                                                    .window = window,
                                                    .mask_token = mask_token})) {}

  Sequence* Add(const Tokens& tokens, std::shared_ptr<const Tenant> tenant = nullptr) {
    sequences_.push_back(
        {.tokens = tokens,
         .state = drafter_->NewStateOf(DrafterKind::kModel, tokens, std::move(tenant))});
    return &sequences_.back();
  }
  absl::Status Propose(const std::vector<Sequence*>& sequences, int granted) {
    return ProposeFor(*drafter_, sequences, std::vector<int>(sequences.size(), granted));
  }
  // Commits `accepted` tokens of the draft and the target's own next token.
  void Commit(int accepted, TokenId own, Sequence* s) {
    s->tokens.insert(s->tokens.end(), s->proposal.tokens.begin(),
                     s->proposal.tokens.begin() + accepted);
    s->tokens.push_back(own);
    drafter_->Rollback(s->state.get(), static_cast<int>(s->tokens.size()) - 1);
  }
  int NumUnread(Sequence* s) {
    const auto options = drafter_->Options(s->state.get(), s->tokens);
    return options.empty() ? -1 : options[0].num_unread;
  }
  // Returns how many tokens the model has read since the last call.
  int TakeNumRead() {
    int num_read = 0;
    for (const auto& pass : model_.passes()) {
      for (const auto& fed : pass) num_read += static_cast<int>(fed.tokens.size());
    }
    model_.passes().clear();
    return num_read;
  }
  // Expects each token to be drawn from the model's row after the window and the draft so far, or
  // masks in place of it.
  void ExpectDrawnFromWindow(const Sequence& s, int num_skipped) {
    const TokenId mask = drafter_->mask_token();
    ExpectDrawnFrom(s, [&](Tokens text) {
      if (mask != kNoMaskToken) {
        std::fill(text.begin() + static_cast<int64_t>(s.tokens.size()), text.end(), mask);
      }
      std::vector<float> row = model_.RowAfter(Windowed(text, num_skipped));
      row.resize(kSmallVocab);
      return row;
    });
  }

  FakeCache& cache() { return cache_; }
  FakeModel& model() { return model_; }
  Drafter& drafter() { return *drafter_; }

 private:
  FakeCache cache_;
  FakeModel model_;
  std::unique_ptr<Drafter> drafter_;
  std::deque<Sequence> sequences_;
};

TEST(DraftWindow, KeepsItsSizeWithinBounds) {
  for (int recent = 1; recent <= 20; ++recent) {
    for (const int most : {recent, recent + 1, 2 * recent, 4 * recent}) {
      const DraftWindow window{.recent = recent, .most = most};
      for (int begin = 1; begin < 120; ++begin) {
        int before = 0;
        for (int length = begin; length < 200; ++length) {
          const int skipped = window.NumSkipped(begin, length);
          ASSERT_GE(skipped, before);
          const int left = length - kSinks - skipped;
          ASSERT_LE(left, most);
          if (length == begin) {
            ASSERT_LE(left, std::max(recent, begin - kSinks));
          }
          if (skipped > 0) {
            ASSERT_GE(left, std::max(1, recent / 2)) << recent << " " << most;
          }
          if (length <= kSinks + recent) {
            ASSERT_EQ(skipped, 0);
          }
          before = skipped;
        }
      }
    }
  }
}

TEST(DraftWindow, FitsTheDraftsContext) {
  const DraftWindow wide = DraftWindow::Of(kAutoDraftWindow, {.target = 1 << 20, .draft = 1 << 20});
  EXPECT_EQ(wide.recent, DraftWindow::kAutoRecent);
  EXPECT_EQ(wide.most, 4 * DraftWindow::kAutoRecent);
  for (const int context : {1, 36, 37, 38, 60, 512, 2048}) {
    for (const bool reads_other_tokens : {false, true}) {
      for (const int wanted : {kAutoDraftWindow, 1, 16, 511, 100000, 2147483647}) {
        const DraftWindow window = DraftWindow::Of(
            wanted,
            {.target = 2147483647, .draft = context, .reads_other_tokens = reads_other_tokens});
        const int readable = reads_other_tokens ? context / 2 : context;
        if (window.recent == 0) {
          EXPECT_TRUE(wanted == 2147483647 || readable <= kSinks + kMaxDraftTokens);
          continue;
        }
        EXPECT_LE(window.recent, window.most);
        EXPECT_LE(kSinks + window.most + kMaxDraftTokens, readable);
      }
    }
  }
  EXPECT_EQ(DraftWindow::Of(0, {.target = 1 << 20, .draft = 1 << 20}).recent, 0);
  EXPECT_EQ(DraftWindow::Of(20, {.target = kSinks + 20, .draft = 100}).recent, 0);
  EXPECT_EQ(DraftWindow::Of(20, {.target = kSinks + 21, .draft = 100}).recent, 20);
}

// Row 175 of the bug catalogue. Prompts are shown chunk by chunk, as the engine does.
TEST(WindowedDrafter, ReadsNoMoreOfALongPromptThanItsWindow) {
  std::mt19937_64 random(1);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 2000);
  for (const int recent : {1, 16, 100, 512}) {
    WindowWorld world({.recent = recent, .most = 4 * recent});
    WindowWorld::Sequence* const s = world.Add({});
    Proposal* const proposal = &s->proposal;
    for (int end = 256; end < 2000; end += 256) {
      const DraftRequest request{.context = absl::MakeConstSpan(prompt).first(end),
                                 .num_committed = 2000,
                                 .sampling = &s->sampling,
                                 .state = s->state.get()};
      ASSERT_TRUE(world.drafter().Propose({&request, 1}, {&proposal, 1}).ok());
      if (end <= 2000 - recent) {
        EXPECT_EQ(world.drafter().NumCached(*s->state), 0);
      }
    }
    s->tokens = prompt;
    EXPECT_LE(world.NumUnread(s), kSinks + recent);
    ASSERT_TRUE(world.Propose({s}, 1).ok());
    EXPECT_THAT(s->proposal.tokens, SizeIs(1));
    const int num_read = world.TakeNumRead();
    EXPECT_LE(num_read, kSinks + recent);
    EXPECT_GT(num_read, 3 * recent / 4);
  }
}

TEST(WindowedDrafter, DraftsLikeThePlainDrafterWhileTheTextFits) {
  constexpr int kRecent = 40;
  WindowWorld windowed({.recent = kRecent, .most = 4 * kRecent});
  WindowWorld plain({});
  std::mt19937_64 random(2);
  const Tokens prompt = RandomTokens(random, kSmallVocab, kSinks + kRecent);
  WindowWorld::Sequence* const a = windowed.Add(prompt);
  WindowWorld::Sequence* const b = plain.Add(prompt);
  for (int round = 0; static_cast<int>(a->tokens.size()) <= kSinks + 4 * kRecent; ++round) {
    ASSERT_TRUE(windowed.Propose({a}, 3).ok());
    ASSERT_TRUE(plain.Propose({b}, 3).ok());
    ASSERT_EQ(a->proposal.tokens, b->proposal.tokens);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(a->proposal.drawn_from[i].probs, b->proposal.drawn_from[i].probs);
    }
    EXPECT_EQ(windowed.TakeNumRead(), plain.TakeNumRead());
    windowed.Commit(round % 4, round % 7, a);
    plain.Commit(round % 4, round % 7, b);
  }
}

// Batches with random rollbacks, evictions and failures, and a draft context much shorter than the
// texts. Every draft is drawn from the rows after its window, and its cache holds nothing else.
TEST(WindowedDrafter, SeesOnlyItsWindowOverRandomRounds) {
  for (const auto& [recent, mask] : std::vector<std::pair<int, TokenId>>{{1, kNoMaskToken},
                                                                         {2, kNoMaskToken},
                                                                         {3, kNoMaskToken},
                                                                         {5, kNoMaskToken},
                                                                         {6, kNoMaskToken},
                                                                         {7, kNoMaskToken},
                                                                         {23, kNoMaskToken},
                                                                         {2, 8},
                                                                         {7, 8},
                                                                         {23, 8}}) {
    constexpr int kContext = 80;
    const DraftWindow window = DraftWindow::Of(recent, {.target = 1 << 20, .draft = kContext});
    WindowWorld world(window, {.vocab = kSmallVocab + 2, .context_length = kContext},
                      /*page_size=*/3, mask);
    std::mt19937_64 random(static_cast<uint64_t>(recent));
    std::vector<WindowWorld::Sequence*> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(world.Add(RandomTokens(random, kSmallVocab, 3 + 20 * i)));
    }
    for (int round = 0; round < 150; ++round) {
      for (int i = 0; i < 3; ++i) {
        DraftState* const state = all[i]->state.get();
        if (random() % 20 == 0) world.drafter().Evict(state);
        if (random() % 20 == 0) {
          const auto length = static_cast<int>(random() % all[i]->tokens.size());
          world.drafter().Rollback(state, length);
        }
      }
      FillFreePages(world.cache().get(), round % 2 == 0 ? NAN : 1e30f);
      world.model().options().fail_every = random() % 10 == 0 ? 2 : 0;
      const bool drafted = world.Propose(all, static_cast<int>(random() % 4)).ok();
      for (WindowWorld::Sequence* s : all) {
        const int k = drafted ? static_cast<int>(s->proposal.tokens.size()) : 0;
        if (!drafted) s->proposal.Clear();
        const int cached = world.drafter().NumCached(*s->state);
        if (drafted) {
          const int num_drafted = mask == kNoMaskToken ? std::max(k - 1, 0) : 0;
          const int num_skipped = static_cast<int>(s->tokens.size()) + num_drafted - cached;
          ASSERT_LE(cached, kSinks + window.most + 3);
          world.ExpectDrawnFromWindow(*s, num_skipped);
        }
        world.Commit(k == 0 ? 0 : static_cast<int>(random() % (k + 1)),
                     static_cast<TokenId>(random() % kSmallVocab), s);
        if (random() % 2 == 0) world.drafter().Publish(s->state.get(), s->tokens);
      }
      ASSERT_TRUE(world.drafter().CheckIntegrity().ok()) << world.drafter().CheckIntegrity();
    }
    for (const WindowWorld::Sequence* s : all) EXPECT_GT(s->tokens.size(), size_t{kContext});
  }
}

// A rollback to a position before the window starts a new window.
TEST(WindowedDrafter, RollsBackToBeforeTheWindow) {
  std::mt19937_64 random(3);
  const Tokens text = RandomTokens(random, kSmallVocab, 60);
  const DraftWindow window{.recent = 8, .most = 16};
  for (int length = 0; length < 60; ++length) {
    WindowWorld world(window);
    WindowWorld::Sequence* const s = world.Add(text);
    ASSERT_TRUE(world.Propose({s}, 2).ok());
    world.drafter().Rollback(s->state.get(), length);
    s->tokens.resize(length + 1);
    s->tokens.back() = (text[length] + 1) % kSmallVocab;
    ASSERT_TRUE(world.Propose({s}, 2).ok());
    EXPECT_THAT(s->proposal.tokens, SizeIs(2));
    const int cached = world.drafter().NumCached(*s->state);
    world.ExpectDrawnFromWindow(*s, length + 2 - cached);
    if (length < kSinks + 8) {
      EXPECT_EQ(cached, length + 2);
    }
  }
}

// Texts of similar lengths have the same window and share its pages. A text that was read
// completely shares only the page of the sinks.
TEST(WindowedDrafter, SharesPagesOnlyWithTheSameWindow) {
  std::mt19937_64 random(4);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 98);
  const DraftWindow window{.recent = 32, .most = 128};
  WindowWorld world(window, {}, /*page_size=*/4);
  WindowWorld::Sequence* const first = world.Add(prompt);
  ASSERT_TRUE(world.Propose({first}, 1).ok());
  world.drafter().Publish(first->state.get(), prompt);
  const int num_read = world.TakeNumRead();
  EXPECT_GT(num_read, 16);

  Tokens other = prompt;
  other.push_back(3);
  WindowWorld::Sequence* const second = world.Add(other);
  EXPECT_EQ(world.drafter().NumCached(*second->state), num_read / 4 * 4);
  ASSERT_TRUE(world.Propose({second}, 1).ok());
  world.ExpectDrawnFromWindow(*second, 99 - world.drafter().NumCached(*second->state));
  EXPECT_THAT(world.TakeNumRead(), Le(4));

  // The same tokens, but reading began while the text was short.
  WindowWorld::Sequence* const whole = world.Add(Tokens(prompt.begin(), prompt.begin() + 30));
  EXPECT_EQ(world.drafter().NumCached(*whole->state), kSinks);
  whole->tokens = prompt;
  ASSERT_TRUE(world.Propose({whole}, 1).ok());
  EXPECT_EQ(world.drafter().NumCached(*whole->state), 98);
  world.ExpectDrawnFromWindow(*whole, 0);
  world.drafter().Publish(whole->state.get(), prompt);

  WindowWorld::Sequence* const third = world.Add(prompt);
  ASSERT_TRUE(world.Propose({third}, 1).ok());
  EXPECT_THAT(world.TakeNumRead(), Le(98));
  world.ExpectDrawnFromWindow(*third, 98 - world.drafter().NumCached(*third->state));
  EXPECT_THAT(third->proposal.tokens, ElementsAreArray(first->proposal.tokens));
}

// Tenants do not share pages of equal windows.
TEST(WindowedDrafter, SharesPagesOnlyWithinATenant) {
  std::mt19937_64 random(5);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 98);
  WindowWorld world({.recent = 32, .most = 128}, {}, /*page_size=*/4);
  Tenants tenants(/*memory_bytes=*/0);
  const auto tenant = [&](const char* salt) {
    return tenants.Get(std::make_shared<const std::string>(salt));
  };
  WindowWorld::Sequence* const first = world.Add(prompt, tenant("a"));
  ASSERT_TRUE(world.Propose({first}, 1).ok());
  world.drafter().Publish(first->state.get(), prompt);
  EXPECT_GT(world.drafter().NumCached(*world.Add(prompt, tenant("a"))->state), 16);
  EXPECT_EQ(world.drafter().NumCached(*world.Add(prompt, tenant("b"))->state), 0);
  EXPECT_EQ(world.drafter().NumCached(*world.Add(prompt)->state), 0);
}

}  // namespace
}  // namespace tandem
