#include "text/added_tokens.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

AddedToken Token(TokenId id, const std::string& content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return token;
}

// Formats parts: ordinary text as it is, tokens as "#id".
std::vector<std::string> Shown(const std::vector<TextPart>& cut) {
  std::vector<std::string> parts;
  for (const TextPart& part : cut) {
    parts.push_back(part.added_id < 0 ? std::string(part.text) : absl::StrCat("#", part.added_id));
  }
  return parts;
}

std::vector<std::string> Cut(std::vector<AddedToken> tokens, std::string_view text,
                             SpecialTokens special = SpecialTokens::kParse) {
  const AddedTokenFinder finder(std::move(tokens));
  std::vector<TextRange> plain;
  if (special == SpecialTokens::kPlain) plain.push_back({0, text.size()});
  return Shown(finder.Cut(text, plain));
}

TEST(AddedTokens, FindsTheLeftmostThenTheLongest) {
  const std::vector<AddedToken> tokens = {Token(1, "ab"), Token(2, "abcd"), Token(3, "bcde"),
                                          Token(4, "c")};
  EXPECT_THAT(Cut(tokens, "xabcdex"), ElementsAre("x", "#2", "ex"));
  EXPECT_THAT(Cut(tokens, "abcx"), ElementsAre("#1", "#4", "x"));
  EXPECT_THAT(Cut(tokens, "abab"), ElementsAre("#1", "#1"));
  EXPECT_THAT(Cut(tokens, ""), IsEmpty());
  EXPECT_THAT(Cut({}, "abc"), ElementsAre("abc"));
}

TEST(AddedTokens, PrefersTheFirstOfEqualTokens) {
  EXPECT_THAT(Cut({Token(7, "ab"), Token(5, "ab")}, "ab"), ElementsAre("#7"));
}

TEST(AddedTokens, PlainSpecialTokensHideTokensInsideThem) {
  AddedToken special = Token(1, "<a>");
  special.special = true;
  const std::vector<AddedToken> tokens = {special, Token(2, "a"), Token(3, ">b")};
  EXPECT_THAT(Cut(tokens, "<a>ba"), ElementsAre("#1", "b", "#2"));
  // As in the reference, the match is dropped and not searched again.
  EXPECT_THAT(Cut(tokens, "<a>ba", SpecialTokens::kPlain), ElementsAre("<a>b", "#2"));
}

TEST(AddedTokens, SingleWordsTouchNoWordCharacter) {
  AddedToken token = Token(1, "ing");
  token.single_word = true;
  EXPECT_THAT(Cut({token}, "ing sing inge -ing- \u00e9ing ing\u0301 ing_ ing"),
              ElementsAre("#1", " sing inge -", "#1", "- \u00e9ing ing\u0301 ing_ ", "#1"));
}

TEST(AddedTokens, StrippingIncludesWhiteSpace) {
  AddedToken left = Token(1, "<l>");
  left.left_strip = true;
  AddedToken right = Token(2, "<r>");
  right.right_strip = true;
  const std::vector<AddedToken> tokens = {left, right};
  EXPECT_THAT(Cut(tokens, "a \u3000\n<l> b"), ElementsAre("a", "#1", " b"));
  EXPECT_THAT(Cut(tokens, "a <r>\t \u00a0b"), ElementsAre("a ", "#2", "b"));
  EXPECT_THAT(Cut(tokens, "<r>  <l>"), ElementsAre("#2", "#1"));
  EXPECT_THAT(Cut(tokens, "  <l>"), ElementsAre("#1"));
}

TEST(AddedTokens, WhiteSpaceTokensCountInsideStrippedSpace) {
  AddedToken right = Token(1, "<r>");
  right.right_strip = true;
  EXPECT_THAT(Cut({right, Token(2, "\n")}, "<r> \n x"), ElementsAre("#1", "#2", " x"));
}

TEST(AddedTokens, StrippingWhiteSpaceTokensDoNotCountInsideStrippedSpace) {
  AddedToken right = Token(1, "<r>");
  right.right_strip = true;
  AddedToken line = Token(2, "\n");
  line.left_strip = true;
  AddedToken spaces = Token(3, "  ");
  spaces.left_strip = spaces.right_strip = true;
  const std::vector<AddedToken> tokens = {right, line, spaces, Token(4, "\n<l>")};
  EXPECT_THAT(Cut(tokens, "<r>\nx"), ElementsAre("#1", "x"));
  EXPECT_THAT(Cut(tokens, "<r>    x"), ElementsAre("#1", "x"));
  EXPECT_THAT(Cut(tokens, "<r> \n x"), ElementsAre("#1", "x"));  // the reference panics
  EXPECT_THAT(Cut(tokens, "      x"), ElementsAre("#3", "x"));
  EXPECT_THAT(Cut(tokens, "<r> \n<l>\n"), ElementsAre("#1", "#4", "#2"));
  EXPECT_THAT(Cut(tokens, "x\n\n"), ElementsAre("x", "#2", "#2"));
}

TEST(AddedTokens, SpecialTokensCountOnlyOutsidePlainRanges) {
  AddedToken end = Token(1, "<end>");
  end.special = true;
  const AddedTokenFinder finder({end, Token(2, "b")});
  // The plain range is a whole token, the end or the beginning of one, or touches the real one.
  EXPECT_THAT(Shown(finder.Cut("a<end>b<end>", {{0, 7}})), ElementsAre("a<end>", "#2", "#1"));
  EXPECT_THAT(Shown(finder.Cut("<end><end>", {{3, 5}})), ElementsAre("<end>", "#1"));
  EXPECT_THAT(Shown(finder.Cut("<end><end>", {{0, 2}})), ElementsAre("<end>", "#1"));
  EXPECT_THAT(Shown(finder.Cut("<end><end>", {{0, 5}})), ElementsAre("<end>", "#1"));
  EXPECT_THAT(Shown(finder.Cut("<e<end>", {{0, 2}})), ElementsAre("<e", "#1"));
  EXPECT_THAT(Shown(finder.Cut("<end><end>", {{0, 5}, {5, 10}})), ElementsAre("<end><end>"));
}

}  // namespace
}  // namespace tandem
