#include "draft/prediction.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<TokenId>& Predicted() {
  static const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 4, 5, 6, 10};
  return tokens;
}

TEST(Prediction, IsFollowed) {
  Prediction prediction(Predicted());
  EXPECT_EQ(prediction.Behind({}).size(), 13u);
  EXPECT_THAT(prediction.Behind({1, 2, 3}).first(2), ElementsAre(4, 5));
  EXPECT_THAT(prediction.Behind({1, 2, 3}).first(2), ElementsAre(4, 5));
  EXPECT_THAT(prediction.Behind(Predicted()), IsEmpty());
  std::vector<TokenId> longer = Predicted();
  longer.push_back(1);
  EXPECT_THAT(prediction.Behind(longer), IsEmpty());
}

// Changed, left out and put in: three tokens tell where it goes on.
TEST(Prediction, IsFoundAgain) {
  Prediction changed(Predicted());
  EXPECT_THAT(changed.Behind({1, 2, 33, 4, 5}), IsEmpty());
  EXPECT_THAT(changed.Behind({1, 2, 33, 4, 5, 6}).first(1), ElementsAre(7));
  Prediction left_out(Predicted());
  EXPECT_THAT(left_out.Behind({1, 2, 7, 8, 9}).first(1), ElementsAre(4));
  Prediction put_in(Predicted());
  EXPECT_THAT(put_in.Behind({1, 2, 20, 21, 1, 2}), IsEmpty());
  EXPECT_THAT(put_in.Behind({1, 2, 20, 21, 1, 2, 3}).first(1), ElementsAre(4));
}

// Where it says the same twice, the next place counts, and the longest run before that.
TEST(Prediction, PrefersTheLongestAndTheNext) {
  Prediction near(Predicted());
  EXPECT_THAT(near.Behind({1, 2, 3, 4, 5, 6, 7, 0, 4, 5, 6}).first(1), ElementsAre(10));
  Prediction longest(Predicted());
  EXPECT_THAT(longest.Behind({0, 9, 4, 5, 6}), ElementsAre(10));
}

TEST(Prediction, OfNothingIsNothing) {
  Prediction none;
  EXPECT_THAT(none.Behind({}), IsEmpty());
  EXPECT_THAT(none.Behind({1, 2, 3, 4}), IsEmpty());
}

}  // namespace
}  // namespace tandem
