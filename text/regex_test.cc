#include "text/regex.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the matched parts of `text`.
std::vector<std::string> Matches(const absl::StatusOr<Regex>& regex, const std::string& text) {
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (!regex.ok()) return {};
  const auto matches = regex->FindAll(text);
  EXPECT_TRUE(matches.ok()) << matches.status();
  if (!matches.ok()) return {};
  std::vector<std::string> parts;
  for (const Regex::Match& match : *matches) {
    parts.push_back(text.substr(match.begin, match.end - match.begin));
  }
  return parts;
}

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  return Matches(Regex::Compile(pattern), text);
}

TEST(Regex, WhiteSpaceFollowsUnicode) {
  const std::string spaces =
      "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000";
  EXPECT_THAT(Matches(R"(\s+)", spaces), ElementsAre(spaces));
  EXPECT_THAT(Matches(R"([\s]+)", spaces), ElementsAre(spaces));
  EXPECT_THAT(Matches(R"(\S|[^\s]|[\S])", spaces), IsEmpty());
  // The Mongolian vowel separator, which PCRE2 includes, and characters that only look like spaces.
  const std::string others = "\u180e\u200b\u2060\ufeff\u001c";
  EXPECT_THAT(Matches(R"(\s)", others), IsEmpty());
  EXPECT_THAT(Matches(R"(\S+)", others), ElementsAre(others));
  EXPECT_THAT(Matches(R"([\S]+)", others), ElementsAre(others));
}

TEST(Regex, WordCharactersAreLettersMarksDecimalsAndConnectors) {
  const std::string word = "aZ\u00e9\u4e2d\u0301\u0663_\u203f";
  EXPECT_THAT(Matches(R"(\w+)", word), ElementsAre(word));
  EXPECT_THAT(Matches(R"([\w]+)", word), ElementsAre(word));
  EXPECT_THAT(Matches(R"(\w)", "\u00bd\u2167-. "), IsEmpty());  // other numbers are not
  EXPECT_THAT(Matches(R"(\W+)", "a\u00bd\u2167b"), ElementsAre("\u00bd\u2167"));
  EXPECT_THAT(Matches(R"(\b.)", "ab \u0301c"), ElementsAre("a", " ", "\u0301"));
  EXPECT_THAT(Matches(R"(\B.)", "ab"), ElementsAre("b"));
}

TEST(Regex, EscapesFollowOniguruma) {
  EXPECT_THAT(Matches(R"(\h+)", "09afAF g\t "), ElementsAre("09afAF"));
  EXPECT_THAT(Matches(R"(\H+|[\h]+)", "xyab"), ElementsAre("xy", "ab"));
  EXPECT_THAT(Matches(R"(\v)", "\n\v\r"), ElementsAre("\v"));
  EXPECT_THAT(Matches(R"([\v])", "\n\v\r"), ElementsAre("\v"));
  EXPECT_THAT(Matches(R"(\u4e2d[\u4e00-\u9fff])", "\u4e2d\u6587"), ElementsAre("\u4e2d\u6587"));
  EXPECT_THAT(Matches(R"(\x41\x{42}\p{Lu}\P{L})", "ABC1"), ElementsAre("ABC1"));
  EXPECT_THAT(Matches(R"(\[\\\]\{\})", "[\\]{}"), ElementsAre("[\\]{}"));
}

TEST(Regex, LinesAndDotsFollowRuby) {
  EXPECT_THAT(Matches("^.", "ab\ncd\n"), ElementsAre("a", "c"));
  EXPECT_THAT(Matches(".$", "ab\ncd\n"), ElementsAre("b", "d"));
  EXPECT_THAT(Matches(".+", "a\r\nb"), ElementsAre("a\r", "b"));
  EXPECT_THAT(Matches("(?m:.+)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(Matches("(?mi)A.b", "a\nB"), ElementsAre("a\nB"));
}

TEST(Regex, RepeatCountsFollowOniguruma) {
  EXPECT_THAT(Matches(R"(\p{N}{1,3})", "12345"), ElementsAre("123", "45"));
  EXPECT_THAT(Matches("a{,2}b", "aaab b"), ElementsAre("aab", "b"));
  EXPECT_THAT(Matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(Matches("a{x}{,}", "a{x}{,}"), ElementsAre("a{x}{,}"));
  EXPECT_THAT(Matches("a++|b?+", "aab"), ElementsAre("aa", "b"));
}

TEST(Regex, IgnoringCaseFollowsUnicode) {
  EXPECT_THAT(Matches("(?i:'s|'t)", "'S'T'\u017f's"), ElementsAre("'S", "'T", "'\u017f", "'s"));
}

TEST(Regex, EmptyMatchesDoNotFollowAMatch) {
  const auto regex = Regex::Compile("a*");
  const auto matches = regex->FindAll("\u00e9aab").value();
  std::vector<std::pair<size_t, size_t>> found;
  for (const auto& match : matches) found.emplace_back(match.begin, match.end);
  EXPECT_THAT(found, ElementsAre(std::pair(0, 0), std::pair(2, 4), std::pair(5, 5)));
}

TEST(Regex, LiteralsHaveNoSyntax) {
  EXPECT_THAT(Matches(Regex::CompileLiteral("a.b(\\s"), "a.b(\\s axb"), ElementsAre("a.b(\\s"));
  EXPECT_FALSE(Regex::CompileLiteral("").ok());
}

TEST(Regex, RefusesUntranslatableFormsWithTheOffset) {
  for (const char* pattern :
       {"x[a-z&&[^b]]", "x[a[bc]]", "x{1,2}+", "x(*UTF)", "x(?~b)", "x(?P<n>b)", "x(?R)",
        "x(?|a|b)", "x\\Qb", "x\\y", "x[a", "x[\\", "x\\", "x\\u12", "x(?#", "x[\\W]", "x\\p{L"}) {
    const auto regex = Regex::Compile(pattern);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr("offset")) << pattern;
  }
  for (const char* pattern : {"(", "a)", "*", "\\p{NoSuchProperty}", "(?<=a*)b"}) {
    EXPECT_FALSE(Regex::Compile(pattern).ok()) << pattern;
  }
}

// Expressions of published tokenizers: cl100k, o200k, and a class of all ASCII punctuation.
TEST(Regex, PublishedExpressions) {
  EXPECT_THAT(Matches(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?)"
                      R"([^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
                      "I'LL go 12!\n  x"),
              ElementsAre("I", "'LL", " go", " ", "12", "!\n", " ", " x"));
  const std::string o200k =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
      R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_THAT(Matches(o200k, "HelloWorld it's a/b 1234"),
              ElementsAre("Hello", "World", " it's", " a", "/b", " ", "123", "4"));
  EXPECT_THAT(
      Matches(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[\p{P}\p{S}]+)", "a_b [c] {d}&&"),
      ElementsAre("_b", "[c", "]", "{d", "}&&"));
}

TEST(Regex, MatchesLongTexts) {
  const std::string text(1'000'000, 'a');
  EXPECT_THAT(Matches("(?:a|b)+", text), ElementsAre(text));
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s+)", std::string(1'000'000, ' ')),
              ElementsAre(std::string(1'000'000, ' ')));
}

TEST(Regex, TooManyStepsAreAnError) {
  const auto regex = Regex::Compile("(?:a+)+b");
  const auto matches = regex->FindAll(std::string(100, 'a') + "cb");
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(matches.status()), "text");
}

}  // namespace
}  // namespace tandem
