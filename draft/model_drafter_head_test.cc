// Tests of ModelDrafter with a cut head: it drafts the same as a model with the other tokens
// masked.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "draft/model_drafter.h"
#include "gtest/gtest.h"
#include "tests/drafter_world.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kCutVocab = 9;

// The rows of another model, reduced to some tokens or with the others at -infinity.
class CutModel final : public LanguageModel {
 public:
  CutModel(FakeModel* model, bool is_gathered, Tokens ids)
      : ids(std::move(ids)), model_(model), is_gathered_(is_gathered) {}
  int vocab_size() const override { return kCutVocab; }
  int head_tokens() const override {
    return is_gathered_ ? static_cast<int>(ids.size()) : kCutVocab;
  }
  absl::Span<const TokenId> head_ids() const override {
    return is_gathered_ ? absl::MakeConstSpan(ids) : absl::Span<const TokenId>();
  }
  int context_length() const override { return model_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    const absl::StatusOr<MatrixView> logits = model_->Forward(requests);
    if (!logits.ok()) return logits;
    rows_.clear();
    for (int r = 0; r < logits->rows; ++r) {
      const float* const row = static_cast<const float*>(logits->data) + r * logits->stride;
      for (TokenId id = 0; id < kCutVocab; ++id) {
        const bool is_in = std::binary_search(ids.begin(), ids.end(), id);
        if (is_in) rows_.push_back(row[id]);
        if (!is_in && !is_gathered_) rows_.push_back(-std::numeric_limits<float>::infinity());
      }
    }
    return MatrixView{rows_.data(), DType::kF32, logits->rows, head_tokens(), head_tokens()};
  }

  Tokens ids;  // may change between rounds

 private:
  FakeModel* model_;
  bool is_gathered_;
  std::vector<float> rows_;
};

// A drafter over such a model.
struct CutWorld {
  CutWorld(bool is_gathered, const VocabularyMap* map, TokenId mask_token)
      : cache(3, 400),
        model(cache.get(), {.vocab = kCutVocab}),
        cut(&model, is_gathered, {1, 4, 7}),
        drafter(&cut, cache.get(), kCutVocab, 8, map, mask_token) {}

  void Draft(const Tokens& tokens, const SamplingParams& sampling, DraftNoise noise) {
    if (text.state == nullptr) text.state = drafter.NewState(tokens);
    text.tokens = tokens;
    text.sampling = sampling;
    text.noise = noise;
    text.history = TokenHistory();
    text.history.AddPrompt(tokens);
    ASSERT_TRUE(ProposeFor(drafter, {&text}, {4}).ok());
    drafter.Rollback(text.state.get(), static_cast<int>(tokens.size()) - 1);
  }

  FakeCache cache;
  FakeModel model;
  CutModel cut;
  ModelDrafter drafter;
  DraftedText text;
};

VocabularyMap ShiftedMap() {
  std::vector<VocabularyMap::Pair> pairs;
  std::vector<Tokens> readings;
  for (TokenId id = 0; id < kCutVocab; ++id) {
    pairs.push_back({id, (id + 2) % kCutVocab});
    readings.push_back({(id + 2) % kCutVocab});
  }
  return {pairs, readings};
}

TEST(CutHead, DraftsTheSameAsAModelWithOtherTokensMasked) {
  const VocabularyMap map = ShiftedMap();
  const SamplingParams all_params[] = {{.temperature = 0.0f},
                                       {.temperature = 0.8f},
                                       {.temperature = 1.2f, .top_k = 2, .top_p = 0.9f},
                                       {.temperature = 0.0f, .repetition_penalty = 1.5f},
                                       {.temperature = 0.9f, .frequency_penalty = 0.7f},
                                       {.logit_bias = {{4, -2.0f}, {2, 50.0f}}}};
  int num_drafted = 0;
  // In steps, and in one pass whose masks are not in the head.
  const VocabularyMap* const no_map = nullptr;
  for (const auto& [used, mask_token] :
       {std::pair(no_map, kNoMaskToken), {&map, kNoMaskToken}, {no_map, 5}, {&map, 5}}) {
    for (const SamplingParams& sampling : all_params) {
      CutWorld gathered(/*is_gathered=*/true, used, mask_token);
      CutWorld masked(/*is_gathered=*/false, used, mask_token);
      Tokens tokens = {3, 1, 8};
      for (int round = 0; round < 30; ++round) {
        // Change the head.
        if (round == 15) gathered.cut.ids = masked.cut.ids = {0, 2, 4, 8};
        const DraftNoise noise = round % 2 == 0 ? DraftNoise::kOwn : DraftNoise::kTargets;
        gathered.Draft(tokens, sampling, noise);
        masked.Draft(tokens, sampling, noise);
        ASSERT_EQ(gathered.text.proposal.tokens, masked.text.proposal.tokens);
        for (size_t i = 0; i < gathered.text.proposal.tokens.size(); ++i) {
          const Distribution& got = gathered.text.proposal.drawn_from[i];
          const Distribution& want = masked.text.proposal.drawn_from[i];
          EXPECT_EQ(got.only, want.only);
          ASSERT_LE(got.probs.size(), want.probs.size());
          for (size_t v = 0; v < want.probs.size(); ++v) {
            // The sums are in another order: four roundings per row.
            const float probability = v < got.probs.size() ? got.probs[v] : 0.0f;
            EXPECT_NEAR(probability, want.probs[v], 4 * 6e-8);
          }
        }
        num_drafted += static_cast<int>(gathered.text.proposal.tokens.size());
        tokens.push_back(static_cast<TokenId>((5 * round + 2) % kCutVocab));
      }
    }
  }
  EXPECT_GT(num_drafted, 2000);
}

}  // namespace
}  // namespace tandem
