#include "draft/prediction.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<TokenId>& Predicted() {
  static const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 4, 5, 6, 10};
  return tokens;
}

Prediction Follow(std::vector<TokenId> tokens) {
  return Prediction(std::make_shared<const PredictedText>("", std::move(tokens)));
}

TEST(Prediction, FollowsTheOutput) {
  Prediction prediction = Follow(Predicted());
  EXPECT_EQ(prediction.ContinuationOf({}).size(), 13u);
  EXPECT_THAT(prediction.ContinuationOf({1, 2, 3}).first(2), ElementsAre(4, 5));
  EXPECT_THAT(prediction.ContinuationOf({1, 2, 3}).first(2), ElementsAre(4, 5));
  EXPECT_THAT(prediction.ContinuationOf(Predicted()), IsEmpty());
  std::vector<TokenId> longer = Predicted();
  longer.push_back(1);
  EXPECT_THAT(prediction.ContinuationOf(longer), IsEmpty());
}

// After changed, omitted and inserted tokens, three matching tokens find the place again.
TEST(Prediction, FindsItsPlaceAgain) {
  Prediction changed = Follow(Predicted());
  EXPECT_THAT(changed.ContinuationOf({1, 2, 33, 4, 5}), IsEmpty());
  EXPECT_THAT(changed.ContinuationOf({1, 2, 33, 4, 5, 6}).first(1), ElementsAre(7));
  Prediction left_out = Follow(Predicted());
  EXPECT_THAT(left_out.ContinuationOf({1, 2, 7, 8, 9}).first(1), ElementsAre(4));
  Prediction put_in = Follow(Predicted());
  EXPECT_THAT(put_in.ContinuationOf({1, 2, 20, 21, 1, 2}), IsEmpty());
  EXPECT_THAT(put_in.ContinuationOf({1, 2, 20, 21, 1, 2, 3}).first(1), ElementsAre(4));
}

// If several places match, the longest run wins, then the next place.
TEST(Prediction, PrefersTheLongestRunAndThenTheNextPlace) {
  Prediction near = Follow(Predicted());
  EXPECT_THAT(near.ContinuationOf({1, 2, 3, 4, 5, 6, 7, 0, 4, 5, 6}).first(1), ElementsAre(10));
  Prediction longest = Follow(Predicted());
  EXPECT_THAT(longest.ContinuationOf({0, 9, 4, 5, 6}), ElementsAre(10));
}

// The definition by brute force: the longest run of 3 to 6 tokens; among equal runs the first place
// at or after `next`, otherwise the last before it.
size_t FindByTrying(const std::vector<TokenId>& tokens, absl::Span<const TokenId> output,
                    size_t next) {
  size_t best_run = 2;
  size_t best = 0;
  for (size_t place = 3; place <= tokens.size(); ++place) {
    size_t run = 0;
    while (run < std::min({size_t{6}, place, output.size()}) &&
           tokens[place - 1 - run] == output[output.size() - 1 - run]) {
      ++run;
    }
    if (run < 3 || run < best_run) continue;
    if (run > best_run || best < next) best = place;
    best_run = run;
  }
  return best;
}

TEST(PredictedText, FindAgreesWithBruteForce) {
  std::mt19937_64 random(1);
  for (const int vocab : {1, 2, 3, 5}) {
    for (int trial = 0; trial < 100; ++trial) {
      const std::vector<TokenId> tokens =
          RandomTokens(random, vocab, static_cast<int>(random() % 60));
      const std::vector<TokenId> output =
          RandomTokens(random, vocab, static_cast<int>(random() % 9));
      const PredictedText text("", tokens);
      for (size_t next = 0; next <= tokens.size(); ++next) {
        ASSERT_EQ(text.Find(output, next), FindByTrying(tokens, output, next))
            << vocab << " " << trial << " " << next;
      }
    }
  }
}

// Row 121 of the bug catalogue: trying every place takes minutes here.
TEST(Prediction, FindsItsPlaceQuicklyInLongTexts) {
  constexpr int kLength = 300'000;
  Prediction prediction = Follow(std::vector<TokenId>(kLength, 1));
  std::vector<TokenId> output;
  for (int i = 0; i < 50'000; ++i) {
    output.push_back(i % 4 == 0 ? 2 : 1);
    const bool is_found = i % 4 == 3;
    EXPECT_EQ(prediction.ContinuationOf(output).empty(), !is_found) << i;
  }
}

// ---- Texts ----

TEST(PredictedTexts, TokenisesEachTextOnceForAllSequencesOfARequest) {
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  PredictedTexts texts;
  const std::string text = "Once upon a time there was a king.";
  auto first = *texts.Get(*tokenizer, text, 10);
  EXPECT_EQ(first->tokens(), *tokenizer->Encode(text, SpecialTokens::kPlain));
  EXPECT_EQ(*texts.Get(*tokenizer, text, 10), first);
  // Row 214 of the bug catalogue.
  const auto salt = std::make_shared<const std::string>("a");
  const auto salted = *texts.Get(*tokenizer, text, 10, salt);
  EXPECT_NE(salted, first);
  EXPECT_EQ(*texts.Get(*tokenizer, text, 10, std::make_shared<const std::string>("a")), salted);
  const auto other = *texts.Get(*tokenizer, text + "!", 10);
  EXPECT_NE(other, first);
  EXPECT_EQ(*texts.Get(*tokenizer, text, 10), first);
  const std::weak_ptr<const PredictedText> kept = first;
  first = nullptr;
  EXPECT_TRUE(kept.expired());  // freed with its last request
}

TEST(PredictedTexts, CutsTextsBeyondTheReachOfTheOutput) {
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  PredictedTexts texts;
  std::string text = "x";
  while (text.size() < 100'000) text += "é";  // the bound falls inside a character
  ASSERT_EQ(PredictedTexts::MaxBytes(10), 8272u);
  const auto read = *texts.Get(*tokenizer, text, 10);
  EXPECT_EQ(read->text(), text.substr(0, 8271));
  EXPECT_EQ(tokenizer->Decode(read->tokens()), read->text());
  EXPECT_EQ((*texts.Get(*tokenizer, text, 50'000))->text(), text);
  EXPECT_FALSE(texts.Get(*tokenizer, "\xff", 10).ok());
}

TEST(Prediction, IsEmptyWithoutAText) {
  Prediction none;
  EXPECT_THAT(none.ContinuationOf({}), IsEmpty());
  EXPECT_THAT(none.ContinuationOf({1, 2, 3, 4}), IsEmpty());
}

}  // namespace
}  // namespace tandem
