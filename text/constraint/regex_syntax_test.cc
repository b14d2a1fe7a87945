// Compares whole matches of random texts with std::regex and PCRE2.
#include "text/constraint/regex_syntax.h"

#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "text/constraint/regex_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using LengthRange = std::pair<int64_t, int64_t>;

RegexNode ParsedRegex(absl::string_view pattern, RegexMode mode = RegexMode::kWhole) {
  const auto node = ParseRegex(pattern, mode);
  EXPECT_TRUE(node.ok()) << pattern << ": " << node.status();
  return node.ok() ? *node : RegexNode();
}
std::string PlainText(absl::string_view pattern, RegexMode mode = RegexMode::kWhole) {
  return RegexText(ParsedRegex(pattern, mode), TextForm::kPlain);
}
std::string JsonText(absl::string_view pattern) {
  return RegexText(ParsedRegex(pattern), TextForm::kJson);
}
std::string InJson(const std::string& text) {
  const std::string quoted = SortedJson(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

// An expression in both forms, which must agree.
struct RegexForms {
  explicit RegexForms(const RegexNode& node)
      : plain(RegexText(node, TextForm::kPlain)), json(RegexText(node, TextForm::kJson)) {
    EXPECT_TRUE(plain.status().ok()) << plain.status();
    EXPECT_TRUE(json.status().ok()) << json.status();
  }
  bool Match(const std::string& text) const {
    const bool matches = plain.Matches(text);
    EXPECT_EQ(json.Matches(InJson(text)), matches) << text;
    return matches;
  }
  WholeMatcher plain;
  WholeMatcher json;
};

// Returns `text` cut off, or with a random character inserted or replaced.
std::string ChangedText(std::string text, std::mt19937* random) {
  const std::string others = "ab0 \n\"\\-_.AZ\x01\x1f\x7f\t/^$";
  const size_t at = (*random)() % (text.size() + 1);
  const char other = others[(*random)() % others.size()];
  switch ((*random)() % 3) {
    case 0:
      return text.substr(0, at);
    case 1:
      return text.insert(at, 1, other);
    default:
      if (at < text.size()) text[at] = other;
      return text;
  }
}

TEST(RegexSyntax, AgreesWithStdRegexOnAscii) {
  std::mt19937 random(1);
  for (const char* pattern : {"",
                              "abc",
                              "a|b|cd",
                              "(a|)b",
                              "(|a)(b||c)",
                              "(?:)*x",
                              "a*b+c?",
                              "(ba*)?",
                              "(a*b)?c",
                              "(a|bc*){2,}",
                              "(?:a|b?){2,4}",
                              "(ab|c){0,3}?d",
                              "a{0}b{1}c{2}d{0,1}",
                              "(a{2}){3}",
                              "(a+|b+)+",
                              "((a|b)*c|d)*",
                              "x{3,}?",
                              "[abc]",
                              "[^abc]",
                              "[a-f0-9]{2}",
                              "[\\d_-]+",
                              "[-a]",
                              "[a-]",
                              "[a\\-c]",
                              "[a-c-e]",
                              "[+--]",
                              "[\\]\\\\^]",
                              "[\\b]",
                              "[\\w.]+@[\\w.]+",
                              "\\d\\w\\s",
                              "[^\\d]",
                              "[^\\w]",
                              "[^\\d\\n]",
                              "\\x41\\u0042",
                              "\\t\\n\\v\\f\\r",
                              "\\^\\$\\\\\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\/",
                              ".",
                              ".*",
                              "a.{2,5}\"",
                              "[\"\\\\]{1,3}",
                              "[\\x00-\\x1f]",
                              "[\\x02-\\x19]+",
                              "[\\x0e-\\x11\"]",
                              "\\x07",
                              "\"\\\\",
                              "[\\x00-\\x7f]*",
                              "^abc$",
                              "^a|b$|^c$",
                              "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?"}) {
    const RegexNode node = ParsedRegex(pattern);
    const std::regex reference(std::string("(?:") + pattern + ")");
    const RegexForms forms(node);
    // Parsing the written expression gives the same expression.
    EXPECT_EQ(PlainText(RegexText(node, TextForm::kPlain)), PlainText(pattern));
    for (int i = 0; i < 400; ++i) {
      std::string text = RandomMatch(node, &random);
      if (i % 2 == 1) text = ChangedText(std::move(text), &random);
      // std::regex reads bytes and does not know Unicode's line separators.
      if (!IsAscii(text)) continue;
      const bool matches = std::regex_match(text, reference);
      EXPECT_TRUE(matches || i % 2 == 1) << pattern << " " << InJson(text);
      EXPECT_EQ(forms.Match(text), matches) << pattern << " " << InJson(text);
    }
  }
}

TEST(RegexSyntax, JsonSchemaModeAllowsAnyTextAtTheSideWithoutAnchor) {
  std::mt19937 random(2);
  for (const char* pattern : {"ab", "^ab", "ab$", "^ab$", "^a|b", "a|b$", "^a|b$|c|^d$", "(^a$)",
                              "(^a|(b$|^c$))", "^", "$", "^$", ""}) {
    const RegexNode node = ParsedRegex(pattern, RegexMode::kJsonSchema);
    const std::regex reference(pattern);
    for (int i = 0; i < 100; ++i) {
      const std::string text = RandomMatch(node, &random);
      EXPECT_TRUE(std::regex_search(text, reference)) << pattern << " " << InJson(text);
    }
  }
  const RegexForms begins(ParsedRegex("^ab", RegexMode::kJsonSchema));
  EXPECT_TRUE(begins.Match("ab\nx\"\xF0\x9F\x91\x8D"));
  EXPECT_FALSE(begins.Match("xab"));
  const RegexForms ends(ParsedRegex("ab$|c", RegexMode::kJsonSchema));
  EXPECT_TRUE(ends.Match("xab"));
  EXPECT_TRUE(ends.Match("c"));
  EXPECT_FALSE(ends.Match("abx"));
  EXPECT_FALSE(ends.Match("xc"));
  EXPECT_FALSE(RegexForms(ParsedRegex("^ab")).Match("abx"));
}

struct UnicodeCase {
  std::string pattern;
  std::vector<std::string> matches;
  std::vector<std::string> others;
};

TEST(RegexSyntax, ReadsUnicode) {
  const std::vector<UnicodeCase> cases = {
      {"\\u{1F44D}", {"👍"}, {"👎", "u"}},
      {"\\uD83D\\uDC4D+", {"👍", "👍👍"}, {""}},
      {"[\\uD83D\\uDC4D-\\uD83D\\uDC4E]", {"👍", "👎"}, {"👌"}},
      {"é{2}", {"éé"}, {"é", "e"}},
      {"[à-é]", {"à", "é"}, {"ê", "e"}},
      {"[^a]", {"b", "\n", "é", "👍", "\xEF\xBF\xBF", "\xC2\x80"}, {"a", "ab"}},
      {".", {"é", "👍", "\xC2\x85", "\v"}, {"\n", "\r", "\xE2\x80\xA8", "\xE2\x80\xA9"}},
      {"\\p{Lu}", {"A", "É", "Ω"}, {"a", "1"}},
      {"\\p{Letter}", {"a", "字"}, {"1", "_"}},
      {"[\\p{L}\\p{Nd}]+", {"aé字٣"}, {"a b"}},
      {"\\P{L}", {"1", " ", "👍"}, {"a", "é"}},
      {"[^\\P{L}]", {"a", "é"}, {"1", "\xCD\xB8"}},
      {"[^\\p{L}]", {"1", "👍"}, {"a", "\xCD\xB8"}},  // U+0378 is not assigned
      {"\\p{Sc}\\p{P}\\p{Z}\\p{Cc}", {"€! \x01"}, {"€! a"}},
      // Characters on which ECMA-262 and Python disagree do not match.
      {"\\d", {"3"}, {"٣"}},
      {"\\D", {"a", "²"}, {"3", "٣", "\xCD\xB8"}},
      {"[^\\d]", {"a"}, {"3", "٣"}},
      {"[^\\D]", {"3"}, {"٣", "a"}},
      {"\\w", {"_", "a"}, {"é", "٣"}},
      {"\\W", {" ", "-", "👍", "\xCC\x81"}, {"é", "٣", "_", "²"}},
      {"[^\\w]", {" "}, {"é", "٣", "_"}},
      {"\\s", {"\xE3\x80\x80", "\xC2\xA0", "\n"}, {"\xC2\x85", "\xEF\xBB\xBF", "\x1C"}},
      {"\\S", {"a", "é"}, {"\xC2\x85", "\xEF\xBB\xBF", "\x1C", " "}},
      {"[^\\S]", {" "}, {"\xC2\x85", "\xEF\xBB\xBF", "a"}},
      {"\\cA\\cj\\0", {std::string("\x01\n\0", 3)}, {"cAcj0"}},
      // Names and flags.
      {"(?<year>\\d)-(?P<month_2>\\d)", {"1-2"}, {"12"}},
      {"(?i)a[b-c]\\x44_", {"abD_", "ACd_", "aBd_"}, {"aad_"}},
      {"(?i)[^k]", {"a", "L"}, {"k", "K", "\xE2\x84\xAA"}},  // the Kelvin sign
      {"(?i)[^é]", {"e"}, {"é", "É"}},
      {"\\_\\ \\-\\~", {"_ -~"}, {"_-~"}},
  };
  for (const UnicodeCase& one : cases) {
    const RegexForms forms(ParsedRegex(one.pattern));
    for (const std::string& text : one.matches)
      EXPECT_TRUE(forms.Match(text)) << one.pattern << text;
    for (const std::string& text : one.others)
      EXPECT_FALSE(forms.Match(text)) << one.pattern << text;
  }
}

TEST(RegexSyntax, WritesEscapesOfJson) {
  EXPECT_EQ(JsonText("a\"b"), "a\\x5c\\x22b");
  EXPECT_EQ(JsonText("\"{2}"), "(?:\\x5c\\x22){2}");
  EXPECT_EQ(JsonText("[a-c]"), "[a-c]");
  EXPECT_EQ(JsonText("[a\"\\\\\\n]"), "(?:a|\\x5c[\\x22\\x5cn])");
  EXPECT_EQ(JsonText("\\x1f"), "\\x5cu001[Ff]");
  EXPECT_EQ(JsonText("[^\\x20-\\u{10ffff}]"), "\\x5c(?:[bfnrt]|u00(?:0[0-7BEFbef]|1[0-9A-Fa-f]))");
  const WholeMatcher any(JsonText("[^\\]\\n]{3}"));
  EXPECT_TRUE(any.Matches("\\\"\\u001Fé"));
  EXPECT_TRUE(any.Matches("\\u001fa\\\\"));
  for (const char* other :
       {"\\\"\\\"", "ab\"", "ab\n", "ab\\n", "ab\\u000a", "ab\\u0041", "ab\\", "ab\\/"}) {
    EXPECT_FALSE(any.Matches(other)) << other;
  }
}

TEST(RegexSyntax, AvoidsWhatXGrammarCompilesWrongly) {
  EXPECT_EQ(PlainText("[a-c]?"), "[a-c]?");
  EXPECT_EQ(PlainText("(ba*)?"), "(?:ba*){0,1}");
  EXPECT_EQ(PlainText("(ba*|)"), "(?:ba*){0,1}");
  EXPECT_EQ(PlainText("(ba|c){3,}"), "(?:(?:ba|c)(?:)){3,}");
  EXPECT_EQ(PlainText("[ab]{3,}"), "[ab]{3,}");
  EXPECT_EQ(PlainText("é-"), "\\u{e9}\\x2d");
  // One class for each length in UTF-8, and no surrogates.
  EXPECT_EQ(PlainText("[^a]"),
            "(?:[\\x00-\\x60b-\\x7f]|[\\u{80}-\\u{7ff}]|"
            "[\\u{800}-\\u{d7ff}\\u{e000}-\\u{ffff}]|[\\u{10000}-\\u{10ffff}])");
  EXPECT_EQ(PlainText("[aé]"), "[a\\u{e9}]");
  // The text does not double with each group.
  std::string nested = "a|b";
  for (int i = 0; i < 100; ++i) nested = absl::StrCat("(?:", nested, "c){2,}");
  EXPECT_LT(PlainText(nested).size(), 3000);
}

TEST(RegexSyntax, RejectsUnsupportedSyntax) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(?=b)", "at offset 1: lookaround `(?=` is not supported"},
      {"(?!b)", "offset 0: lookaround `(?!`"},
      {"(?<=b)", "lookaround `(?<=`"},
      {"(?<!b)", "lookaround `(?<!`"},
      {"(a)\\1", "offset 3: a back-reference is not supported"},
      {"(?<n>a)\\k<n>", "back-reference"},
      {"(?P<n>a)(?P=n)", "offset 8: a back-reference"},
      {"é\\b", "offset 2: the word boundary `\\b`"},
      {"\\B", "the word boundary `\\B`"},
      {"a^b", "offset 1: `^` inside an alternative is not supported"},
      {"a$b", "offset 1: `$` inside"},
      {"x(^a$)", "offset 4: `$` inside"},
      {"(a$)*", "offset 2: `$` inside"},
      {"(^a|b)c", "offset 1: `^` inside"},
      {"^*", "`*` has nothing to repeat"},
      {"\\y", "the escape `\\y`"},
      {"\\é", "the escape `\\é`"},
      {"\\Z", "the escape `\\Z`"},
      {"\\p{Script=Greek}", "`\\p{Script=Greek}`, which is not a general category,"},
      {"\\pL", "`\\p` without a name"},
      {"\\p{L", "`\\p` without a name"},
      {"a\xFF", "offset 1: invalid UTF-8"},
      {"*a", "offset 0: `*` has nothing"},
      {"a**", "offset 2: `*` has nothing"},
      {"(|+)", "`+` has nothing"},
      {"a{3,2}", "offset 1: {3,2} is out of order"},
      {"a{10000001}", "a count above 10000000"},
      {"a{99999999999}", "a count above 10000000"},
      {"a{,3}", "`{` does not begin a quantifier"},
      {"a{x}", "`{` does not begin a quantifier"},
      {"a{1", "`{` does not begin a quantifier"},
      {"{1}", "`{` has nothing"},
      {"a}", "`}` alone"},
      {"a]", "`]` alone"},
      {"a++", "a possessive quantifier"},
      {"a{1}+", "a possessive quantifier"},
      {"(?>a)", "an atomic group"},
      {"(?i:a)", "`(?` of a flag"},
      {"a(?i)", "offset 1: `(?` of a flag"},
      {"(?s).", "`(?` of a flag"},
      {"(?#c)", "`(?` of a flag"},
      {"(?<1>a)", "malformed name"},
      {"(?<>a)", "malformed name"},
      {"(a", "offset 0: `(` without `)`"},
      {"a)", "offset 1: `)` without `(`"},
      {"[a", "offset 0: `[` without `]`"},
      {"[]", "an empty class"},
      {"[^]", "an empty class"},
      {"[^\\s\\S]", "a class that matches no character"},
      {"[b-a]", "offset 1: a range out of order"},
      {"[\\w-a]", "a range from or to a class"},
      {"[[:alpha:]]", "a class in a class"},
      {"a\\", "`\\` at the end"},
      {"\\u12", "a malformed escape"},
      {"\\u{110000}", "a malformed escape"},
      {"\\u{}", "a malformed escape"},
      {"\\xg0", "a malformed escape"},
      {"\\uD83D", "a surrogate without its other half"},
      {"\\uDC4D", "a surrogate without its other half"},
      {"\\uD83D\\u0041", "a surrogate without its other half"},
      {"\\01", "an octal escape"},
      {"\\c1", "`\\c` without a letter"},
      {std::string(201, '(') + std::string(201, ')'), "more than 200 nested groups"},
  };
  for (const auto& [pattern, error] : cases) {
    for (const RegexMode mode : {RegexMode::kWhole, RegexMode::kJsonSchema}) {
      const auto node = ParseRegex(pattern, mode);
      ASSERT_FALSE(node.ok()) << pattern;
      EXPECT_THAT(node.status().message(), HasSubstr(error)) << pattern;
    }
  }
  EXPECT_TRUE(ParseRegex(std::string(200, '(') + std::string(200, ')'), RegexMode::kWhole).ok());
  std::string large;
  for (int i = 0; i < 3000; ++i) large += "\\W";
  EXPECT_THAT(ParseRegex(large, RegexMode::kWhole).status().message(),
              HasSubstr("too many large classes"));
}

TEST(RegexSyntax, FindsLengthsOfMatches) {
  EXPECT_EQ(LengthsOf(ParsedRegex("")), LengthRange(0, 0));
  EXPECT_EQ(LengthsOf(ParsedRegex("a👍\"")), LengthRange(3, 3));
  EXPECT_EQ(LengthsOf(ParsedRegex("ab|c{2,7}|")), LengthRange(0, 7));
  EXPECT_EQ(LengthsOf(ParsedRegex("(ab){2,}c")), LengthRange(5, -1));
  EXPECT_EQ(LengthsOf(ParsedRegex("(a?){3}")), LengthRange(0, 3));
  EXPECT_EQ(LengthsOf(ParsedRegex("(()*)*")), LengthRange(0, 0));
  const LengthRange huge =
      LengthsOf(ParsedRegex("((((a{9999999}){9999999}){9999999}){9999999}){9999999}"));
  EXPECT_EQ(huge.first, huge.second);
  EXPECT_GT(huge.first, int64_t{1} << 50);
}

TEST(RegexSyntax, RestrictsLengthsOfMatches) {
  const auto cut = [](absl::string_view pattern, int64_t min, int64_t max) {
    const auto part = WithLengths(ParsedRegex(pattern, RegexMode::kJsonSchema), min, max);
    return part.has_value() ? RegexText(*part, TextForm::kPlain) : "none";
  };
  EXPECT_EQ(cut("a{2,3}", 1, 3), "a{2,3}");
  EXPECT_EQ(cut("^a+$", 0, -1), "a+");
  EXPECT_EQ(cut("^a+$", 0, 10), "a{1,10}");
  EXPECT_EQ(cut("^a+$", 3, -1), "a{3,}");
  EXPECT_EQ(cut("^xy[ab]*z$", 5, 8), "xy[ab]{2,5}z");
  EXPECT_EQ(cut("^xy[ab]*z$", 3, 3), "xyz");
  EXPECT_EQ(cut("^xy[ab]*z$", 0, 2), "none");
  EXPECT_EQ(cut("^x[ab]{2,4}$", 4, 100), "x[ab]{3,4}");
  EXPECT_EQ(cut("^x[ab]{2,4}$", 6, 100), "none");
  EXPECT_EQ(cut("^a*b*$", 0, 5), "none");
  EXPECT_EQ(cut("^(ab)*$", 0, 5), "none");
  EXPECT_EQ(cut("^(a+|bb|cccc)$", 2, 3), "(?:a{2,3}|bb)");
  EXPECT_EQ(cut("^a*$", 0, 20'000'000), "none");
  EXPECT_EQ(cut("^a*$", int64_t{1} << 62, -1), "none");
  EXPECT_THAT(cut("^a", 0, 200), HasSubstr("){0,199}"));
}

TEST(CodePointSets, ObeyTheirAlgebra) {
  std::mt19937 random(3);
  const auto make = [&] {
    std::vector<CodePoints::Range> ranges;
    for (int i = 0; i < 4; ++i) {
      const char32_t first = random() % 0x110000;
      ranges.push_back({first, std::min<char32_t>(first + random() % 0x20000, 0x10FFFF)});
    }
    return CodePoints::Of(std::move(ranges));
  };
  for (int i = 0; i < 100; ++i) {
    const CodePoints a = make();
    const CodePoints b = make();
    EXPECT_EQ(Union(a, b).size() + Intersection(a, b).size(), a.size() + b.size());
    EXPECT_EQ(Complement(a).size(), CodePoints::Any().size() - a.size());
    EXPECT_EQ(Complement(Union(a, b)).ranges, Intersection(Complement(a), Complement(b)).ranges);
    for (const char32_t c :
         {static_cast<char32_t>(random() % 0x110000), char32_t{0xD800}, char32_t{0xE000}}) {
      const bool is_character = c < 0xD800 || c > 0xDFFF;
      EXPECT_EQ(Complement(a).Contains(c), is_character && !a.Contains(c));
      EXPECT_EQ(Union(a, b).Contains(c), a.Contains(c) || b.Contains(c));
    }
  }
}

}  // namespace
}  // namespace tandem
