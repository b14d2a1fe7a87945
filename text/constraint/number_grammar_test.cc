// Compares ranges of numbers with plain arithmetic for every text of a grid.
#include "text/constraint/number_grammar.h"

#include <cmath>
#include <map>
#include <regex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/constraint/regex_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using Bound = std::optional<NumberBound>;
using RangeMaker = absl::StatusOr<std::string> (*)(const Bound&, const Bound&);

using Bound = std::optional<NumberBound>;
absl::StatusOr<std::string> IntegerRange(const Bound& min, const Bound& max) {
  return NumberRange(min, max, /*is_integer=*/true);
}
absl::StatusOr<std::string> DecimalRange(const Bound& min, const Bound& max) {
  return NumberRange(min, max, /*is_integer=*/false);
}

// A list of texts, which finds those that an expression matches.
class TextGrid {
 public:
  explicit TextGrid(std::vector<std::string> texts)
      : texts_(std::move(texts)), lines_(absl::StrJoin(texts_, "\n")) {
    for (size_t i = 0, at = 0; i < texts_.size(); at += texts_[i++].size() + 1) index_at_[at] = i;
  }
  // Appends the texts that match to `matched`, in order.
  void Match(const std::string& pattern, std::vector<std::string>* matched) const {
    const auto regex = Regex::Compile("^(?:" + pattern + ")$");
    ASSERT_TRUE(regex.ok()) << pattern << regex.status();
    const auto found = regex->FindAll(lines_);
    ASSERT_TRUE(found.ok()) << pattern << found.status();
    for (const Regex::Match& match : *found) matched->push_back(texts_[index_at_.at(match.begin)]);
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  std::string lines_;
  std::map<size_t, size_t> index_at_{};
};

std::string RangeName(const Bound& min, const Bound& max) {
  const auto name = [](const Bound& bound) {
    return bound.has_value() ? bound->decimal + (bound->is_exclusive ? " exclusive" : "") : "none";
  };
  return name(min) + " to " + name(max);
}
void ExpectRange(RangeMaker make, const TextGrid& grid, const Bound& min, const Bound& max,
                 const std::vector<std::string>& expected) {
  const auto pattern = make(min, max);
  std::vector<std::string> matched;
  if (pattern.ok()) {
    grid.Match(*pattern, &matched);
  } else {
    EXPECT_THAT(pattern.status().message(), HasSubstr(" is "));
  }
  EXPECT_EQ(matched, expected) << RangeName(min, max) << ": "
                               << (pattern.ok() ? *pattern : pattern.status().ToString());
}

TEST(IntegerRanges, ContainExactlyTheIntegersWithin) {
  std::vector<std::string> texts = {"-0", "00", "01", "-01", "1.0", "1e1", "+1", "", "-", "1 "};
  std::map<std::string, int> values;
  for (int i = -1100; i <= 1100; i += i > -150 && i < 150 ? 1 : 19) {
    texts.push_back(absl::StrCat(i));
    values[texts.back()] = i;
  }
  const TextGrid grid(texts);
  const auto expect = [&](int least, int most, const Bound& min, const Bound& max) {
    std::vector<std::string> expected;
    for (const std::string& text : texts) {
      const auto value = values.find(text);
      if (value != values.end() && value->second >= least && value->second <= most) {
        expected.push_back(text);
      }
    }
    ExpectRange(IntegerRange, grid, min, max, expected);
  };
  for (int min = -130; min <= 130; ++min) {
    const Bound low = NumberBound{absl::StrCat(min)};
    const Bound above = NumberBound{absl::StrCat(min), true};
    expect(min, 1 << 20, low, std::nullopt);
    expect(min + 1, 1 << 20, above, std::nullopt);
    expect(-(1 << 20), min, std::nullopt, low);
    expect(-(1 << 20), min - 1, std::nullopt, above);
    for (int max = min - 2; max <= 130; ++max) {
      const bool is_above = (min + 3 * max) % 5 == 0;
      const bool is_below = (min + 2 * max) % 3 == 0;
      expect(min + (is_above ? 1 : 0), max - (is_below ? 1 : 0), is_above ? above : low,
             NumberBound{absl::StrCat(max), is_below});
    }
  }
  expect(-(1 << 20), 1 << 20, std::nullopt, std::nullopt);
}

TEST(IntegerRanges, ReadDecimalsAndExponents) {
  std::vector<std::string> texts;
  for (int i = -300; i <= 300; ++i) texts.push_back(absl::StrCat(i));
  const TextGrid grid(texts);
  const auto expect = [&](const std::string& min, const std::string& max, int least, int most) {
    std::vector<std::string> expected;
    for (int i = least; i <= most; ++i) expected.push_back(absl::StrCat(i));
    ExpectRange(IntegerRange, grid, NumberBound{min}, NumberBound{max}, expected);
    // Bounds that are not integers may be exclusive without a difference.
    const bool is_whole_min = min == "-0.0" || min == "-1E2";
    ExpectRange(IntegerRange, grid, NumberBound{min, !is_whole_min}, NumberBound{max}, expected);
  };
  expect("-1.5", "2.5", -1, 2);
  expect("0.10", "0.9e1", 1, 9);
  expect("-0.0", "1E+2", 0, 100);
  expect("-1E2", "-0.1e0", -100, -1);
  expect("0.045e2", "2500e-1", 5, 250);
  expect("-0.5", "0.5", 0, 0);
  expect("1e-400", "12345e-4", 1, 1);
}

// Returns the value of `text` in units of 10^-places, for numbers of at most `places` digits of
// fraction; nullopt if it is not a number.
std::optional<int> ValueOf(const std::string& text, int places) {
  static const std::regex& number = *new std::regex("(-?)(0|[1-9][0-9]*)(?:\\.([0-9]+))?");
  std::smatch match;
  if (!std::regex_match(text, match, number)) return std::nullopt;
  std::string fraction = match[3];
  fraction.resize(places, '0');
  const int value = std::stoi(match[2].str() + fraction);
  if (match[1].length() > 0 && value == 0) return std::nullopt;
  return match[1].length() > 0 ? -value : value;
}
std::string DecimalText(int value, int places) {
  const int unit = places == 1 ? 10 : 100;
  return absl::StrFormat("%s%d.%0*d", value < 0 ? "-" : "", std::abs(value) / unit, places,
                         std::abs(value) % unit);
}

TEST(NumberRanges, ContainExactlyTheDecimalsWithin) {
  std::vector<std::string> texts = {"-0", "-0.0", "-0.00", "00", "1.", ".1", "1e0", "-", "01.5"};
  for (int i = -399; i <= 399; ++i) {
    for (const char* sign : {"", "-"}) {
      if (i < 0) continue;
      texts.push_back(sign + absl::StrFormat("%d.%02d", i / 100, i % 100));
      if (i % 10 == 0) texts.push_back(sign + absl::StrFormat("%d.%d", i / 100, i % 100 / 10));
      if (i % 10 == 3) texts.push_back(texts[texts.size() - 1] + "0");
      if (i % 100 == 0) texts.push_back(sign + absl::StrCat(i / 100));
    }
  }
  for (const char* more : {"10", "11.5", "-25", "99.99", "100", "-100.001", "123456789012345"}) {
    texts.push_back(more);
  }
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const TextGrid grid(texts);
  constexpr int kPlaces = 3;
  std::vector<std::optional<int64_t>> values;
  for (const std::string& text : texts) {
    values.push_back(text == "123456789012345" ? 123456789 : ValueOf(text, kPlaces));
  }
  const auto expect = [&](std::optional<int> min, bool is_above, std::optional<int> max,
                          bool is_below, int places) {
    const int unit = places == 1 ? 100 : 10;
    std::vector<std::string> expected;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!values[i].has_value()) continue;
      const int64_t value = *values[i];
      if (min.has_value() && value < *min * unit + (is_above ? 1 : 0)) continue;
      if (max.has_value() && value > *max * unit - (is_below ? 1 : 0)) continue;
      expected.push_back(texts[i]);
    }
    const auto bound = [&](std::optional<int> value, bool is_exclusive) {
      if (!value.has_value()) return Bound();
      return Bound(NumberBound{DecimalText(*value, places), is_exclusive});
    };
    ExpectRange(DecimalRange, grid, bound(min, is_above), bound(max, is_below), expected);
  };
  for (int min = -25; min <= 25; ++min) {
    for (int max = min - 1; max <= 25; ++max) {
      for (int flags = 0; flags < 4; ++flags) expect(min, flags % 2 == 1, max, flags > 1, 1);
    }
    for (const bool is_exclusive : {false, true}) {
      expect(min, is_exclusive, std::nullopt, false, 1);
      expect(std::nullopt, false, min, is_exclusive, 1);
    }
  }
  for (int min = -212; min <= 212; min += 3) {
    for (int max = min - 1; max <= 212; max += 5) {
      expect(min, (min + max) % 2 == 0, max, (min + max) % 3 == 0, 2);
    }
  }
  expect(std::nullopt, false, std::nullopt, false, 1);
}

// Checks that the range contains `matches` and does not contain `others`.
void ExpectTexts(RangeMaker make, const Bound& min, const Bound& max,
                 const std::vector<std::string>& matches, const std::vector<std::string>& others) {
  const auto pattern = make(min, max).value();
  const auto node = ParseRegex(pattern, RegexMode::kWhole);
  ASSERT_TRUE(node.ok()) << pattern << node.status();
  for (const std::string& expression : {pattern, RegexText(*node, TextForm::kJson)}) {
    const WholeMatcher matcher(expression);
    ASSERT_TRUE(matcher.status().ok()) << matcher.status();
    for (const std::string& text : matches)
      EXPECT_TRUE(matcher.Matches(text)) << text << expression;
    for (const std::string& text : others)
      EXPECT_FALSE(matcher.Matches(text)) << text << expression;
  }
}

TEST(NumberRanges, AreExactAtAnySize) {
  ExpectTexts(IntegerRange, NumberBound{"-9223372036854775808"}, NumberBound{"9223372036854775807"},
              {"9223372036854775807", "-9223372036854775808", "0", "1000000000000000000"},
              {"9223372036854775808", "-9223372036854775809", "10000000000000000000"});
  ExpectTexts(IntegerRange, NumberBound{"123456789012345678901234567890"}, std::nullopt,
              // The nearest double is 123456789012345677877719597056.
              {"123456789012345678901234567890", "999999999999999999999999999999",
               "9999999999999999999999999999999"},
              {"123456789012345678901234567889", "99999999999999999999999999999999", "1"});
  // The nearest double is below 10^23.
  ExpectTexts(IntegerRange, std::nullopt, NumberBound{"1e23"},
              {"99999999999999991611392", "-1", "0"},
              {"99999999999999991611393", "100000000000000000000000"});
  ExpectTexts(DecimalRange, NumberBound{"0"}, NumberBound{"1.7976931348623157e308"},
              {"0", "0.5", "999999999999999.999"}, {"1000000000000000", "-1"});
  ExpectTexts(IntegerRange, NumberBound{absl::StrCat("1", std::string(98, '0'), "1"), true},
              std::nullopt, {absl::StrCat("1", std::string(98, '0'), "2")},
              {absl::StrCat("1", std::string(98, '0'), "0"), "1"});
  ExpectTexts(DecimalRange, NumberBound{"5e-324"}, NumberBound{"1"}, {"0.000000000000001", "1.0"},
              {"0", "0.0", "0.0000000000000001"});
  ExpectTexts(DecimalRange, std::nullopt, std::nullopt,
              {"999999999999999.999999999999999", "-0.000000000000001", "0.0", "-10"},
              {"1000000000000000", "0.0000000000000001", "-0", "-0.000", "1e5"});
  ExpectTexts(DecimalRange, NumberBound{"1000000000000000"}, NumberBound{"9999999999999999"},
              {"1000000000000001"}, {"1000000000000000.5", "999999999999999"});
}

TEST(NumberRanges, AreExactAsDoublesToo) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    // Bounds of different sizes, some of them with few digits.
    const int scale = static_cast<int>(random() % 14) - 6;
    const double value = std::ldexp(static_cast<double>(random()), -32) * std::pow(10, scale) *
                         (i % 3 == 0 ? -1 : 1);
    const std::string text = absl::StrFormat("%.*g", i % 2 == 0 ? 17 : 3, value);
    double bound = 0;
    ASSERT_TRUE(absl::SimpleAtod(text, &bound));
    for (const bool is_exclusive : {false, true}) {
      for (const bool is_min : {false, true}) {
        const NumberBound one{text, is_exclusive};
        const auto pattern =
            is_min ? DecimalRange(one, std::nullopt) : DecimalRange(std::nullopt, one);
        ASSERT_TRUE(pattern.ok()) << text << pattern.status();
        const auto node = ParseRegex(*pattern, RegexMode::kWhole).value();
        for (int j = 0; j < 30; ++j) {
          const std::string number = RandomMatch(node, &random);
          double read = 0;
          ASSERT_TRUE(absl::SimpleAtod(number, &read)) << number;
          const bool is_within = is_min ? (is_exclusive ? read > bound : read >= bound)
                                        : (is_exclusive ? read < bound : read <= bound);
          EXPECT_TRUE(is_within) << number << " of " << text;
        }
      }
    }
  }
  // As a double, the bound is 1.
  ExpectTexts(IntegerRange, NumberBound{"0.99999999999999999", true}, NumberBound{"9"}, {"2"},
              {"1"});
  ExpectTexts(DecimalRange, NumberBound{"0.30000000000000004", true}, NumberBound{"1"},
              {"0.300000000000002", "1"}, {"0.300000000000001", "0.3", "0.3000000000000010"});
}

TEST(NumberRanges, RejectEmptyRangesAndInvalidBounds) {
  const auto error = [](const absl::StatusOr<std::string>& range) {
    EXPECT_EQ(range.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(range.status().message());
  };
  EXPECT_EQ(error(IntegerRange(NumberBound{"5"}, NumberBound{"3"})), "no integer is from 5 to 3");
  EXPECT_EQ(error(IntegerRange(NumberBound{"0.1"}, NumberBound{"0.9"})),
            "no integer is from 0.1 to 0.9");
  EXPECT_EQ(error(DecimalRange(NumberBound{"1", true}, NumberBound{"1"})),
            "no number is above 1 to 1");
  EXPECT_EQ(error(DecimalRange(NumberBound{"1e-20"}, NumberBound{"2e-20"})),
            "no number is from 1e-20 to 2e-20");
  for (const char* malformed : {"", "-", "x", "01", "1.", ".5", "1e", "1e+", "+1", "1 ", "0x1"}) {
    EXPECT_EQ(error(IntegerRange(NumberBound{malformed}, std::nullopt)),
              absl::StrCat("minimum: found ", malformed, ", allowed: a number"));
  }
  EXPECT_THAT(error(DecimalRange(std::nullopt, NumberBound{"1e99999999999999999999"})),
              HasSubstr("maximum: found 1e99999999999999999999, allowed: at most 400 digits"));
  EXPECT_THAT(error(DecimalRange(NumberBound{"1e-401"}, std::nullopt)), HasSubstr("at most 400"));
  EXPECT_THAT(error(DecimalRange(NumberBound{"1e300"}, std::nullopt)),
              HasSubstr("minimum: leaves only numbers of more than 100 digits"));
  EXPECT_THAT(error(DecimalRange(std::nullopt, NumberBound{"-1e300"})),
              HasSubstr("maximum: leaves only numbers of more than 100 digits"));
  EXPECT_TRUE(DecimalRange(NumberBound{"-1e300"}, NumberBound{"1e300"}).ok());
}

}  // namespace
}  // namespace tandem
