#include "text/constraint/string_lengths.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem {
namespace {

StringProgress After(const std::string& bytes) {
  StringProgress progress;
  for (const char byte : bytes) progress.Add(byte);
  return progress;
}

TEST(StringProgress, CountsCodePointsOfTheDecodedString) {
  EXPECT_EQ(After("").num_characters(), 0);
  EXPECT_EQ(After("ab").num_characters(), 2);
  EXPECT_EQ(After("\xc3\xa9\xf0\x9f\x91\x8d").num_characters(), 2);
  EXPECT_EQ(After(R"(\n\\\")").num_characters(), 3);
  EXPECT_EQ(After(R"(\u00e9x)").num_characters(), 2);
  EXPECT_EQ(After(R"(\ud83d\udc4dx)").num_characters(), 2);
  EXPECT_EQ(After(R"(\uD83D\uDC4D\uD83D\uDC4D)").num_characters(), 2);
  EXPECT_EQ(After(R"(\uFFFF\n)").num_characters(), 2);
}

TEST(StringProgress, CountsACharacterAtItsFirstByte) {
  EXPECT_EQ(After("\xf0").num_characters(), 1);
  EXPECT_EQ(After(R"(a\)").num_characters(), 2);
  EXPECT_EQ(After(R"(a\u00)").num_characters(), 2);
  EXPECT_FALSE(After(R"(\u00)").is_between_characters());
  EXPECT_FALSE(After(R"(\ud83d)").is_between_characters());
  EXPECT_TRUE(After(R"(\ud83d\udc4d)").is_between_characters());
}

TEST(StringProgress, EndsAtAnUnescapedQuote) {
  EXPECT_TRUE(After("ab\"").has_ended());
  EXPECT_FALSE(After(R"(ab\")").has_ended());
  EXPECT_TRUE(After(R"(ab\\")").has_ended());
  EXPECT_EQ(After("ab\"").num_characters(), 2);
}

TEST(LengthRanges, AreJoinedWhereTheyTouch) {
  EXPECT_EQ(JoinedRanges({{5, 7}, {1, 2}}), (LengthRanges{{1, 2}, {5, 7}}));
  EXPECT_EQ(JoinedRanges({{3, 4}, {1, 2}}), (LengthRanges{{1, 4}}));
  EXPECT_EQ(JoinedRanges({{1, -1}, {4, 9}}), (LengthRanges{{1, -1}}));
  EXPECT_EQ(JoinedRanges({{0, 9}, {4, -1}}), (LengthRanges{{0, -1}}));
  EXPECT_EQ(JoinedRanges({{3, 2}}), LengthRanges());
}

TEST(LengthRanges, AreCheckedWithinAndAtTheEndOfAString) {
  const LengthRanges ranges = {{1, 2}, {4, 5}};
  EXPECT_TRUE(AreWithin(ranges, After("")));
  EXPECT_FALSE(AreWithin(ranges, After("\"")));
  EXPECT_TRUE(AreWithin(ranges, After("ab\"")));
  EXPECT_TRUE(AreWithin(ranges, After("abc")));
  EXPECT_FALSE(AreWithin(ranges, After("abc\"")));
  EXPECT_TRUE(AreWithin(ranges, After("abcde\"")));
  EXPECT_FALSE(AreWithin(ranges, After("abcdef")));
  EXPECT_TRUE(AreWithin({{0, -1}}, After("abcdef")));
}

}  // namespace
}  // namespace tandem
