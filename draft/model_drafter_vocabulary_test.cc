// Tests of ModelDrafter with another vocabulary than the target's.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "draft/model_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/drafter_world.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Tokens = std::vector<TokenId>;

// The target's tokens 0 to 4 are paired with draft tokens. 5 and 6 are read as several draft
// tokens, 7 is skipped, and 8 is unreadable. The draft's tokens 0 and 3 are not paired.
constexpr int kTargetVocab = 9;
constexpr int kDraftVocab = 7;
VocabularyMap PartialMap() {
  return {{{0, 5}, {1, 1}, {2, 6}, {3, 2}, {4, 4}},
          {{5}, {1}, {6}, {2}, {4}, {0, 3}, {3, 1, 3}, {}, {VocabularyMap::kUnreadable}}};
}

// A sequence and its drafter.
struct TranslatedSequence : DraftedText {
  TranslatedSequence(Tokens prompt, Drafter* drafter, SamplingParams params = {}, uint64_t seed = 1)
      : drafter(drafter) {
    tokens = std::move(prompt);
    sampling = std::move(params);
    random = RandomSource(seed);
    history.AddPrompt(tokens);
    state = drafter->NewState(tokens);
  }

  const Tokens& Draft(int max_tokens) {
    EXPECT_TRUE(ProposeFor(*drafter, {this}, {max_tokens}).ok());
    return proposal.tokens;
  }
  // Commits `num_accepted` drafted tokens and `next`.
  void Commit(int num_accepted, TokenId next) {
    for (int i = 0; i <= num_accepted; ++i) {
      tokens.push_back(i < num_accepted ? proposal.tokens[i] : next);
      history.AddOutput(tokens.back());
    }
    drafter->Rollback(state.get(), static_cast<int>(tokens.size()) - 1);
  }

  Drafter* drafter;
};

struct TranslatedWorld {
  explicit TranslatedWorld(FakeModel::Options options = {.vocab = kDraftVocab}, int page_size = 3,
                           int chunk_tokens = 8, TokenId mask_token = kNoMaskToken)
      : cache(page_size, 400),
        model(cache.get(), std::move(options)),
        map(PartialMap()),
        drafter(&model, cache.get(), kTargetVocab, chunk_tokens, &map, mask_token) {}

  Tokens ReadingOf(const Tokens& tokens) const {
    Tokens text;
    for (const TokenId token : tokens) {
      for (const TokenId read : map.Reading(token)) text.push_back(read);
    }
    return text;
  }
  // Returns the row over the target's tokens after a text and `num_masks` masks.
  std::vector<float> TargetRowAfter(const Tokens& tokens, int num_masks = 0) const {
    Tokens read = ReadingOf(tokens);
    read.resize(read.size() + num_masks, drafter.mask_token());
    const std::vector<float> row = model.RowAfter(read);
    std::vector<float> target_row(kTargetVocab, -INFINITY);
    for (const auto& [target, draft] : map.pairs()) target_row[target] = row[draft];
    return target_row;
  }
  // Expects each draft token to be drawn from its recorded distribution, over the target's tokens.
  void ExpectDrawnAsRecorded(const TranslatedSequence& s) const {
    ExpectDrawnFrom(s, [&](const Tokens& context) {
      if (drafter.mask_token() == kNoMaskToken) return TargetRowAfter(context);
      return TargetRowAfter(s.tokens, static_cast<int>(context.size() - s.tokens.size()));
    });
    for (const Distribution& q : s.proposal.drawn_from) {
      if (q.only >= 0) continue;
      EXPECT_THAT(q.probs, SizeIs(kTargetVocab));
      // Nine roundings to f32.
      EXPECT_NEAR(std::accumulate(q.probs.begin(), q.probs.end(), 0.0), 1.0, 9 * 6e-8);
      for (TokenId v = 5; v < kTargetVocab; ++v) EXPECT_EQ(q.probs[v], 0.0f);
    }
  }

  FakeCache cache;
  FakeModel model;
  VocabularyMap map;
  ModelDrafter drafter;
};

const SamplingParams kParams[] = {
    {},
    {.temperature = 0.0f},
    {.temperature = 0.7f, .top_k = 3, .min_p = 0.05f},
    {.temperature = 1.2f, .top_p = 0.8f},
    {.repetition_penalty = 1.3f, .frequency_penalty = 0.5f, .presence_penalty = 0.25f},
    {.logit_bias = {{2, 4.0f}, {6, 50.0f}, {1, -100.0f}}}};

// ---- The same tokens by other ids ----

// A model with the same rows and permuted ids.
class PermutedModel final : public LanguageModel {
 public:
  PermutedModel(FakeModel* model, Tokens ids) : model_(model), ids_(std::move(ids)) {}
  int vocab_size() const override { return model_->vocab_size(); }
  int context_length() const override { return model_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    std::vector<Tokens> fed;
    std::vector<ForwardRequest> passes(requests.begin(), requests.end());
    for (ForwardRequest& pass : passes) {
      fed.emplace_back();
      for (const TokenId token : pass.tokens) {
        fed.back().push_back(
            static_cast<TokenId>(std::find(ids_.begin(), ids_.end(), token) - ids_.begin()));
      }
    }
    for (size_t i = 0; i < passes.size(); ++i) passes[i].tokens = fed[i];
    const auto logits = model_->Forward(passes);
    if (!logits.ok()) return logits;
    rows_.assign(static_cast<size_t>(logits->rows) * logits->cols, NAN);
    for (int row = 0; row < logits->rows; ++row) {
      const float* from = static_cast<const float*>(logits->data) + row * logits->stride;
      for (int v = 0; v < logits->cols; ++v) rows_[row * logits->cols + ids_[v]] = from[v];
    }
    return MatrixView{rows_.data(), DType::kF32, logits->rows, logits->cols, logits->cols};
  }

 private:
  FakeModel* model_;
  Tokens ids_;  // [vocab]: the id of each of the model's tokens
  std::vector<float> rows_;
};

TEST(MappedDraft, IsTheSameWithPermutedIds) {
  constexpr int kVocab = 7;
  std::mt19937_64 random(1);
  int num_drafted = 0;
  for (const SamplingParams& sampling : kParams) {
    Tokens ids(kVocab);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<VocabularyMap::Pair> pairs;
    std::vector<Tokens> readings;
    for (TokenId id = 0; id < kVocab; ++id) {
      pairs.push_back({id, ids[id]});
      readings.push_back({ids[id]});
    }
    const VocabularyMap map(pairs, readings);
    FakeCache cache(3, 400);
    FakeModel model(cache.get(), {.vocab = kVocab});
    PermutedModel permuted(&model, ids);
    ModelDrafter plain(&model, cache.get(), kVocab, 8);
    ModelDrafter mapped(&permuted, cache.get(), kVocab, 8, &map);
    const Tokens prompt = RandomTokens(random, kVocab, 5);
    TranslatedSequence a(prompt, &plain, sampling);
    TranslatedSequence b(prompt, &mapped, sampling);
    for (int round = 0; round < 60; ++round) {
      a.noise = b.noise = round % 2 == 0 ? DraftNoise::kOwn : DraftNoise::kTargets;
      const int k = static_cast<int>(random() % 6);
      model.passes().clear();
      a.Draft(k);
      const auto passes = std::exchange(model.passes(), {});
      b.Draft(k);
      ASSERT_EQ(a.proposal.tokens, b.proposal.tokens);
      ASSERT_EQ(passes.size(), model.passes().size());
      for (size_t i = 0; i < passes.size(); ++i) {
        EXPECT_EQ(passes[i][0].tokens, model.passes()[i][0].tokens);
        EXPECT_EQ(passes[i][0].start, model.passes()[i][0].start);
      }
      const size_t drafted = a.proposal.tokens.size();
      for (size_t i = 0; i < drafted; ++i) {
        EXPECT_EQ(a.proposal.drawn_from[i].only, b.proposal.drawn_from[i].only);
        EXPECT_EQ(a.proposal.drawn_from[i].probs, b.proposal.drawn_from[i].probs);
      }
      num_drafted += static_cast<int>(drafted);
      const int accepted = static_cast<int>(random() % (drafted + 1));
      const TokenId next = static_cast<TokenId>(random() % kVocab);
      a.Commit(accepted, next);
      b.Commit(accepted, next);
    }
  }
  EXPECT_GT(num_drafted, 500);
}

// ---- Another vocabulary ----

// Random draft lengths and acceptance, with rollbacks, evictions and rounds without a draft. The
// cache holds the draft's reading of committed tokens, and each draft equals the one that a fresh
// state makes for the same text.
TEST(MappedDraft, KeepsTheReadingOfTheTextOverRandomRounds) {
  for (size_t trial = 0; trial < 2 * std::size(kParams); ++trial) {
    // In steps, and in one pass with a mask of the draft's own.
    const TokenId mask = trial < std::size(kParams) ? kNoMaskToken : 3;
    TranslatedWorld world({.vocab = kDraftVocab}, /*page_size=*/3, /*chunk_tokens=*/8, mask);
    const SamplingParams& sampling = kParams[trial % std::size(kParams)];
    std::mt19937_64 random(trial);
    TranslatedSequence s(RandomTokens(random, 8, 6), &world.drafter, sampling, trial);
    int num_drafted = 0;
    for (int round = 0; round < 150; ++round) {
      s.noise = random() % 2 == 0 ? DraftNoise::kOwn : DraftNoise::kTargets;
      if (random() % 20 == 0) world.drafter.Evict(s.state.get());
      if (random() % 20 == 0) {
        world.drafter.Rollback(s.state.get(), static_cast<int>(random() % s.tokens.size()));
      }
      s.proposal.Clear();
      if (random() % 4 != 0) {
        const int k = static_cast<int>(random() % 7);
        FillFreePages(world.cache.get(), round % 2 == 0 ? NAN : 1e30f);
        world.model.passes().clear();
        ASSERT_THAT(s.Draft(k), SizeIs(k));
        world.ExpectDrawnAsRecorded(s);
        num_drafted += k;
        if (!world.model.passes().empty()) {
          Tokens fed = world.ReadingOf(s.tokens);
          for (int i = 0; i + 1 < k && mask == kNoMaskToken; ++i)
            fed.push_back(world.ReadingOf({s.proposal.tokens[i]})[0]);
          const KvSequence& kv = *world.model.passes().back()[0].kv;
          ASSERT_EQ(FakeModel::Contents(kv), fed);
          TranslatedSequence fresh(s.tokens, &world.drafter, s.sampling, trial);
          fresh.noise = s.noise;
          fresh.history = s.history;
          EXPECT_EQ(fresh.Draft(k), s.proposal.tokens);
          const int accepted = static_cast<int>(random() % (k + 1));
          s.Commit(accepted, static_cast<TokenId>(random() % 8));
          // The cache holds only committed tokens, without the last one.
          const Tokens committed = world.ReadingOf({s.tokens.begin(), s.tokens.end() - 1});
          const Tokens cached = FakeModel::Contents(kv);
          ASSERT_EQ(cached.size(), std::min(fed.size(), committed.size()));
          ASSERT_TRUE(std::equal(cached.begin(), cached.end(), committed.begin()));
          continue;
        }
      }
      s.Commit(0, static_cast<TokenId>(random() % 8));
    }
    EXPECT_GT(num_drafted, 200);
  }
}

TEST(MappedDraft, ReadsEveryTokenOnce) {
  TranslatedWorld world;
  TranslatedSequence s({0, 5, 7, 6, 1}, &world.drafter);
  const Tokens draft = s.Draft(3);
  ASSERT_THAT(draft, SizeIs(3));
  ASSERT_THAT(world.model.passes(), SizeIs(3));
  EXPECT_THAT(world.model.passes()[0][0].tokens, ElementsAre(5, 0, 3, 3, 1, 3, 1));
  EXPECT_EQ(world.model.passes()[1][0].tokens, world.ReadingOf({draft[0]}));
  // Two are kept. The target adds a token that the draft reads as two.
  s.Commit(2, 5);
  world.model.passes().clear();
  s.Draft(1);
  ASSERT_THAT(world.model.passes(), SizeIs(1));
  EXPECT_EQ(world.model.passes()[0][0].start, 9);
  EXPECT_THAT(world.model.passes()[0][0].tokens, ElementsAre(0, 3));
}

// After a token with an empty reading nothing is unread, but the draft needs a row.
TEST(MappedDraft, ReadsTheLastTokenAgainAfterASkippedToken) {
  TranslatedWorld world;
  TranslatedSequence s({0, 1, 2}, &world.drafter);
  s.Draft(1);
  s.Commit(0, 7);
  EXPECT_THAT(world.drafter.Options(s.state.get(), s.tokens), SizeIs(1));
  s.Commit(0, 7);
  EXPECT_EQ(world.drafter.Options(s.state.get(), s.tokens)[0].num_unread, 1);
  world.model.passes().clear();
  EXPECT_THAT(s.Draft(2), SizeIs(2));
  world.ExpectDrawnAsRecorded(s);
  EXPECT_THAT(world.model.passes()[0][0].tokens, ElementsAre(6));
  EXPECT_EQ(world.model.passes()[0][0].start, 2);
}

TEST(MappedDraft, IsEmptyWithoutReadableTokens) {
  TranslatedWorld world;
  TranslatedSequence s({7, 7}, &world.drafter);
  EXPECT_THAT(s.Draft(3), IsEmpty());
  EXPECT_THAT(world.drafter.Options(s.state.get(), s.tokens), IsEmpty());
  s.Commit(0, 2);
  EXPECT_THAT(s.Draft(3), SizeIs(3));
  world.ExpectDrawnAsRecorded(s);
}

TEST(MappedDraft, IsEmptyAfterAnUnreadableToken) {
  TranslatedWorld world;
  TranslatedSequence s({1, 2}, &world.drafter);
  EXPECT_THAT(s.Draft(2), SizeIs(2));
  s.Commit(1, 8);
  EXPECT_THAT(s.Draft(2), IsEmpty());
  EXPECT_THAT(world.drafter.Options(s.state.get(), s.tokens), IsEmpty());
  s.Commit(0, 1);
  EXPECT_THAT(s.Draft(2), IsEmpty());
  // Another request with the same beginning can draft.
  s.tokens = {1, 2, 3};
  world.drafter.Rollback(s.state.get(), 2);
  EXPECT_THAT(s.Draft(2), SizeIs(2));
}

TEST(MappedDraft, CountsItsContextInItsOwnTokens) {
  for (int n = 1; n <= 4; ++n) {
    TranslatedWorld world({.vocab = kDraftVocab, .context_length = 8});
    TranslatedSequence s(Tokens(n, 6), &world.drafter);  // three draft tokens each
    const int room = std::max(0, 8 - 3 * n + 1);
    EXPECT_THAT(s.Draft(5), SizeIs(std::min(room, 5))) << n;
    const auto options = world.drafter.Options(s.state.get(), s.tokens);
    ASSERT_THAT(options, SizeIs(room > 0));
    if (room > 0) {
      EXPECT_EQ(options[0].max_tokens, room);
    }
  }
}

TEST(MappedDraft, ReadsPromptsInChunksOfItsOwnTokens) {
  TranslatedWorld world({.vocab = kDraftVocab}, 3, /*chunk_tokens=*/4);
  std::mt19937_64 random(2);
  const Tokens prompt = RandomTokens(random, 8, 19);
  TranslatedSequence s(prompt, &world.drafter);
  for (const size_t shown : {3, 8, 8, 19}) {
    world.model.passes().clear();
    s.tokens.assign(prompt.begin(), prompt.begin() + shown);
    EXPECT_THAT(s.Draft(0), IsEmpty());
    for (const auto& pass : world.model.passes()) EXPECT_LE(pass[0].tokens.size(), 4u);
    if (world.model.passes().empty()) continue;
    EXPECT_EQ(FakeModel::Contents(*world.model.passes().back()[0].kv),
              world.ReadingOf({prompt.begin(), prompt.begin() + shown}));
  }
  EXPECT_THAT(s.Draft(3), SizeIs(3));
  world.ExpectDrawnAsRecorded(s);
}

// Prefixes are keyed by the draft's tokens: texts with the same reading share them, whatever the
// target's tokens.
TEST(MappedDraft, StartsFromPublishedPrefixes) {
  TranslatedWorld world;
  std::mt19937_64 random(3);
  const Tokens prompt = RandomTokens(random, 8, 20);
  TranslatedSequence first(prompt, &world.drafter);
  const Tokens draft = first.Draft(4);
  first.Commit(2, 3);
  world.drafter.Publish(first.state.get(), first.tokens);
  const int length = static_cast<int>(world.ReadingOf(prompt).size());
  const int published = (length - 1) / 3 * 3;
  for (const bool in_chunks : {false, true}) {
    TranslatedSequence second(prompt, &world.drafter);
    world.model.passes().clear();
    if (in_chunks) {
      second.tokens.resize(5);
      EXPECT_THAT(second.Draft(0), IsEmpty());
      EXPECT_THAT(world.model.passes(), IsEmpty());
      second.tokens = prompt;
    }
    EXPECT_EQ(second.Draft(4), draft);
    EXPECT_EQ(world.model.passes()[0][0].start, published);
  }
  // Token 5 is read as the draft's 0 and 3.
  TranslatedSequence other({5, 5, 5, 5}, &world.drafter);
  other.Draft(1);
  world.drafter.Rollback(other.state.get(), 4);
  world.drafter.Publish(other.state.get(), other.tokens);
  TranslatedSequence longer({5, 5, 7, 5, 5, 1}, &world.drafter);
  world.model.passes().clear();
  longer.Draft(1);
  EXPECT_EQ(world.model.passes()[0][0].start, 6);
}

TEST(MappedDraft, InvalidRowEndsTheDraft) {
  TranslatedWorld world;
  world.model.options().poisoned = [](absl::Span<const TokenId> context) {
    return context.size() == 6;
  };
  TranslatedSequence s({1, 5, 2}, &world.drafter);
  EXPECT_THAT(s.Draft(5), SizeIs(2));
  world.model.options().poisoned = nullptr;
  world.ExpectDrawnAsRecorded(s);
}

}  // namespace
}  // namespace tandem
