#include "text/constraint/number_grammar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/constraint/grammar_text.h"
#include "text/constraint/schema_keywords.h"

namespace tandem {
namespace {

constexpr size_t kExactDigits = 15;      // decimals of up to 15 digits are distinct as doubles
constexpr size_t kMaxWholeDigits = 100;  // digits before the point; each may need a group
// Digits before or after the point of a bound. Doubles have up to 309 and 1074.
constexpr size_t kMaxDigits = 400;

// A magnitude. `whole` has no leading zeros, except for "0" itself, and `fraction` no trailing
// zeros.
struct Magnitude {
  std::string whole = "0";
  std::string fraction{};
  bool is_exclusive = false;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
struct SignedBound {
  bool is_negative = false;
  Magnitude magnitude{};
};

// Whether a < b by value.
bool IsLess(const Magnitude& a, const Magnitude& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size();
  return std::pair(a.whole, a.fraction) < std::pair(b.whole, b.fraction);
}

// Return the digits of a number plus one, and minus one.
std::string Incremented(std::string digits) {
  size_t at = digits.size();
  while (at > 0 && digits[at - 1] == '9') digits[--at] = '0';
  if (at == 0) return "1" + digits;
  ++digits[at - 1];
  return digits;
}
// REQUIRES: digits is not "0".
std::string Decremented(std::string digits) {
  size_t at = digits.size();
  while (digits[at - 1] == '0') digits[--at] = '9';
  --digits[at - 1];
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

Magnitude MagnitudeOf(const std::string& digits, size_t num_whole, bool is_exclusive) {
  const size_t first = std::min(digits.find_first_not_of('0'), num_whole);
  Magnitude magnitude{.whole = digits.substr(first, num_whole - first),
                      .fraction = digits.substr(num_whole),
                      .is_exclusive = is_exclusive};
  if (magnitude.whole.empty()) magnitude.whole = "0";
  magnitude.fraction.resize(magnitude.fraction.find_last_not_of('0') + 1);
  return magnitude;
}

absl::StatusOr<SignedBound> ReadBound(const NumberBound& bound) {
  const absl::Status malformed =
      absl::InvalidArgumentError(absl::StrCat("found ", bound.decimal, ", allowed: a number"));
  absl::string_view rest = bound.decimal;
  const bool is_negative = absl::ConsumePrefix(&rest, "-");
  const auto take_digits = [&] {
    size_t count = 0;
    while (count < rest.size() && absl::ascii_isdigit(static_cast<unsigned char>(rest[count]))) {
      ++count;
    }
    std::string digits(rest.substr(0, count));
    rest.remove_prefix(count);
    return digits;
  };
  std::string digits = take_digits();
  const auto num_whole = static_cast<int64_t>(digits.size());
  if (num_whole == 0 || (num_whole > 1 && digits[0] == '0')) return malformed;
  if (absl::ConsumePrefix(&rest, ".")) {
    const std::string fraction = take_digits();
    if (fraction.empty()) return malformed;
    digits += fraction;
  }
  int64_t exponent = 0;
  if (absl::ConsumePrefix(&rest, "e") || absl::ConsumePrefix(&rest, "E")) {
    const bool is_small = absl::ConsumePrefix(&rest, "-");
    if (!is_small) absl::ConsumePrefix(&rest, "+");
    const std::string size = take_digits();
    if (size.empty()) return malformed;
    if (!absl::SimpleAtoi(size, &exponent)) exponent = int64_t{1} << 40;
    exponent = std::min(exponent, int64_t{1} << 40) * (is_small ? -1 : 1);
  }
  if (!rest.empty()) return malformed;
  if (digits.find_first_not_of('0') == std::string::npos) {
    return SignedBound{.magnitude = {.is_exclusive = bound.is_exclusive}};
  }
  const int64_t point = num_whole + exponent;
  const int64_t num_fraction = static_cast<int64_t>(digits.size()) - point;
  if (point > int64_t{kMaxDigits} || num_fraction > int64_t{kMaxDigits}) {
    return absl::InvalidArgumentError(absl::StrCat("found ", bound.decimal, ", allowed: at most ",
                                                   kMaxDigits,
                                                   " digits before and after the point"));
  }
  if (point < 0) digits.insert(0, static_cast<size_t>(-point), '0');
  if (num_fraction < 0) digits.append(static_cast<size_t>(-num_fraction), '0');
  return SignedBound{
      .is_negative = is_negative,
      .magnitude = MagnitudeOf(digits, std::max<int64_t>(point, 0), bound.is_exclusive)};
}

// Returns the nearest double, rounded to an integer. Doubles are integers from 2^53 on.
Magnitude NearestDouble(const Magnitude& bound) {
  double value = 0;
  (void)absl::SimpleAtod(absl::StrCat(bound.whole, ".", bound.fraction), &value);
  return {.whole = Format("%.0f", value), .is_exclusive = bound.is_exclusive};
}

// The magnitudes of one sign that are within the bounds: those from `low` to `high`.
struct MagnitudeRange {
  Magnitude low{};
  Magnitude high{};

  bool is_empty() const {
    return IsLess(high, low) || (!IsLess(low, high) && (low.is_exclusive || high.is_exclusive));
  }
};
struct SignedRange {
  std::optional<MagnitudeRange> negative{};
  std::optional<MagnitudeRange> positive{};  // including zero
  bool has_exclusive = false;
};

// Returns the magnitudes from `low` to `high`, or from `low` on. Bounds of more than 15 digits are
// narrowed to the nearest double if that is within the range. Without `high`, numbers have at most
// 15 digits, or one more than `low`. Errors name the keyword `low_name`.
absl::StatusOr<MagnitudeRange> RangeBetween(Magnitude low, std::optional<Magnitude> high,
                                            const char* low_name) {
  if (low.whole.size() > kMaxWholeDigits) {
    return FieldError(low_name, absl::StrCat("leaves only numbers of more than ", kMaxWholeDigits,
                                             " digits, which are not supported"));
  }
  if (low.whole.size() > kExactDigits) {
    const Magnitude nearest = NearestDouble(low);
    if (IsLess(low, nearest)) low = nearest;
  }
  if (high.has_value() && high->whole.size() > kMaxWholeDigits) high.reset();
  if (!high.has_value()) {
    const size_t num_digits = std::max(kExactDigits, low.whole.size() + 1);
    high = Magnitude{.whole = "1" + std::string(num_digits, '0'), .is_exclusive = true};
  } else if (high->whole.size() > kExactDigits) {
    const Magnitude nearest = NearestDouble(*high);
    if (IsLess(nearest, *high)) high = nearest;
  }
  return MagnitudeRange{.low = std::move(low), .high = *std::move(high)};
}

absl::StatusOr<SignedRange> ReadRange(const std::optional<NumberBound>& min,
                                      const std::optional<NumberBound>& max) {
  std::optional<SignedBound> least;
  std::optional<SignedBound> most;
  const auto read = [](const std::optional<NumberBound>& bound, const char* name,
                       std::optional<SignedBound>* read) {
    if (!bound.has_value()) return absl::OkStatus();
    const auto found = ReadBound(*bound);
    if (!found.ok()) return FieldError(name, found.status().message());
    *read = *found;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read(min, "minimum", &least));
  RETURN_IF_ERROR(read(max, "maximum", &most));
  SignedRange range;
  range.has_exclusive =
      (min.has_value() && min->is_exclusive) || (max.has_value() && max->is_exclusive);
  const auto magnitude_of = [](const std::optional<SignedBound>& bound) {
    return bound.has_value() ? std::optional(bound->magnitude) : std::nullopt;
  };
  if (!most.has_value() || !most->is_negative) {
    const bool is_low = least.has_value() && !least->is_negative;
    ASSIGN_OR_RETURN(range.positive, RangeBetween(is_low ? least->magnitude : Magnitude(),
                                                  magnitude_of(most), "minimum"));
  }
  if (!least.has_value() || least->is_negative) {
    const bool is_low = most.has_value() && most->is_negative;
    ASSIGN_OR_RETURN(range.negative,
                     RangeBetween(is_low ? most->magnitude : Magnitude{.is_exclusive = true},
                                  magnitude_of(least), "maximum"));
  }
  for (std::optional<MagnitudeRange>* side : {&range.negative, &range.positive}) {
    if (side->has_value() && (*side)->is_empty()) side->reset();
  }
  return range;
}

absl::Status NothingBetween(absl::string_view kind, const std::optional<NumberBound>& min,
                            const std::optional<NumberBound>& max) {
  std::string error = absl::StrCat("no ", kind, " is");
  if (min.has_value()) {
    absl::StrAppend(&error, min->is_exclusive ? " above " : " from ", min->decimal);
  }
  if (max.has_value()) {
    absl::StrAppend(&error, max->is_exclusive ? " below " : " to ", max->decimal);
  }
  return absl::InvalidArgumentError(error);
}

std::string DigitRun(size_t least, size_t most) {
  if (most == 0) return "";
  if (least == 1 && most == 1) return "[0-9]";
  if (least == most) return absl::StrCat("[0-9]{", most, "}");
  return absl::StrCat("[0-9]{", least, ",", most, "}");
}
std::string DigitBetween(char from, char to) {
  return from == to ? std::string(1, from)
                    : absl::StrCat("[", std::string(1, from), "-", std::string(1, to), "]");
}
std::string AnyOfTexts(const std::vector<std::string>& texts) {
  return texts.size() == 1 ? texts[0] : absl::StrCat("(?:", absl::StrJoin(texts, "|"), ")");
}

bool IsAll(absl::string_view digits, char digit) {
  return digits.find_first_not_of(digit) == absl::string_view::npos;
}

// Returns an expression for the strings of digits from `low` to `high`, which all have the same
// length. REQUIRES: low.size() == high.size(); low <= high.
std::string DigitsBetween(absl::string_view low, absl::string_view high) {
  const size_t num_rest = low.size() - 1;
  if (IsAll(low, '0') && IsAll(high, '9')) return DigitRun(low.size(), low.size());
  const absl::string_view low_rest = low.substr(1);
  const absl::string_view high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return std::string(1, low[0]) + (num_rest > 0 ? DigitsBetween(low_rest, high_rest) : "");
  }
  char from = low[0];
  char to = high[0];
  std::vector<std::string> parts;
  if (!IsAll(low_rest, '0')) {
    parts.push_back(std::string(1, from++) + DigitsBetween(low_rest, std::string(num_rest, '9')));
  }
  if (!IsAll(high_rest, '9')) {
    parts.push_back(std::string(1, to--) + DigitsBetween(std::string(num_rest, '0'), high_rest));
  }
  if (from <= to) parts.push_back(DigitBetween(from, to) + DigitRun(num_rest, num_rest));
  return AnyOfTexts(parts);
}

// The number of digits that a fraction may have after a given whole part.
struct FractionDigits {
  size_t After(absl::string_view whole) const {
    if (is_integer || whole.size() > kExactDigits) return 0;
    return has_exclusive ? Exact(whole) : kExactDigits;
  }
  // The number of digits with which numbers are still distinct as doubles.
  static size_t Exact(absl::string_view whole) {
    return whole == "0" ? kExactDigits : kExactDigits - std::min(whole.size(), kExactDigits);
  }

  bool is_integer = false;
  bool has_exclusive = false;
};
std::string AnyFraction(size_t num_digits) {
  return num_digits == 0 ? "" : absl::StrCat("(?:\\.", DigitRun(1, num_digits), ")?");
}

// Appends the integers from `low` to `high`, inclusive, with any fraction.
void AppendWholes(const std::string& low, const std::string& high, const FractionDigits& digits,
                  std::vector<std::string>* parts) {
  size_t first_full = 0;  // first and last length of complete lengths that are not written yet
  size_t last_full = 0;
  const auto write_full = [&] {
    if (first_full == 0) return;
    const std::string whole = "[1-9]" + DigitRun(first_full - 1, last_full - 1);
    parts->push_back(whole + AnyFraction(digits.After(std::string(last_full, '1'))));
    first_full = 0;
  };
  std::string from = low;
  if (from == "0") {
    parts->push_back("0" + AnyFraction(digits.After("0")));
    from = "1";
    if (high == "0") return;
  }
  for (size_t size = from.size(); size <= high.size(); ++size) {
    const std::string least = size == from.size() ? from : "1" + std::string(size - 1, '0');
    const std::string most = size == high.size() ? high : std::string(size, '9');
    const size_t num_fraction = digits.After(least);
    const bool is_full = IsAll(least.substr(1), '0') && least[0] == '1' && IsAll(most, '9');
    if (first_full > 0 && (!is_full || digits.After(std::string(last_full, '1')) != num_fraction)) {
      write_full();
    }
    if (is_full) {
      if (first_full == 0) first_full = size;
      last_full = size;
    } else {
      parts->push_back(DigitsBetween(least, most) + AnyFraction(num_fraction));
    }
  }
  write_full();
}

// A limit on the remaining digits of a fraction: the remaining digits of the bound.
struct FractionLimit {
  std::string digits{};
  bool is_exclusive = false;

  FractionLimit Next() const {
    return {.digits = digits.empty() ? "" : digits.substr(1), .is_exclusive = is_exclusive};
  }
};

// Returns an expression for the digits d, from `num_least` (0 or 1) to `num_digits` of them, for
// which .d is within the limits; nullopt if there are no such digits.
std::optional<std::string> FractionTail(std::optional<FractionLimit> low,
                                        const std::optional<FractionLimit>& high, size_t num_least,
                                        size_t num_digits) {
  if (low.has_value() && low->digits.empty() && !low->is_exclusive) low.reset();
  if (num_digits < num_least) return std::nullopt;
  if (!low.has_value() && !high.has_value()) return DigitRun(num_least, num_digits);
  if (high.has_value() && high->digits.empty()) {
    if (high->is_exclusive || low.has_value()) return std::nullopt;
    return num_digits == 0 ? "" : absl::StrCat("0{", num_least, ",", num_digits, "}");
  }
  const bool may_end = num_least == 0 && !low.has_value();
  std::vector<std::string> parts;
  const auto append = [&](char digit, const std::optional<FractionLimit>& least,
                          const std::optional<FractionLimit>& most) {
    const auto tail = FractionTail(least, most, 0, num_digits - 1);
    if (tail.has_value()) parts.push_back(std::string(1, digit) + *tail);
  };
  if (num_digits > 0) {
    char from = !low.has_value() || low->digits.empty() ? '0' : low->digits[0];
    char to = high.has_value() ? high->digits[0] : '9';
    const bool is_last_of_low = low.has_value() && low->digits.size() == 1 && !low->is_exclusive;
    if (low.has_value() && high.has_value() && from == to) {
      append(from, low->Next(), high->Next());
    } else {
      if (low.has_value() && !is_last_of_low) append(from++, low->Next(), std::nullopt);
      if (high.has_value()) append(to--, std::nullopt, high->Next());
      if (from <= to) parts.push_back(DigitBetween(from, to) + DigitRun(0, num_digits - 1));
    }
  }
  if (parts.empty()) return may_end ? std::optional<std::string>("") : std::nullopt;
  return may_end ? absl::StrCat("(?:", absl::StrJoin(parts, "|"), ")?") : AnyOfTexts(parts);
}

// Appends `whole` with the fractions within the limits.
void AppendFractions(const std::string& whole, const FractionLimit& low,
                     const std::optional<FractionLimit>& high, size_t num_digits,
                     std::vector<std::string>* parts) {
  const bool has_none = low.digits.empty() && !low.is_exclusive &&
                        (!high.has_value() || !high->digits.empty() || !high->is_exclusive);
  const auto tail = FractionTail(low, high, 1, num_digits);
  if (!tail.has_value()) {
    if (has_none) parts->push_back(whole);
  } else if (has_none) {
    parts->push_back(absl::StrCat(whole, "(?:\\.", *tail, ")?"));
  } else {
    parts->push_back(absl::StrCat(whole, "\\.", *tail));
  }
}

// Rounds a bound to as many digits as are exact: up for the beginning of a range, and down for its
// end.
Magnitude Rounded(const Magnitude& bound, bool up) {
  const size_t num_digits = FractionDigits::Exact(bound.whole);
  if (bound.fraction.size() <= num_digits) return bound;
  std::string digits = bound.whole + bound.fraction.substr(0, num_digits);
  if (up) digits = Incremented(std::move(digits));
  return MagnitudeOf(digits, digits.size() - num_digits, bound.is_exclusive);
}

std::vector<std::string> SideParts(MagnitudeRange range, const FractionDigits& digits) {
  Magnitude& low = range.low;
  Magnitude& high = range.high;
  if (low.is_exclusive) low = Rounded(low, /*up=*/true);
  if (high.is_exclusive) high = Rounded(high, /*up=*/false);
  std::vector<std::string> parts;
  if (range.is_empty()) return parts;
  const FractionLimit least{.digits = low.fraction, .is_exclusive = low.is_exclusive};
  const FractionLimit most{.digits = high.fraction, .is_exclusive = high.is_exclusive};
  if (low.whole == high.whole) {
    AppendFractions(low.whole, least, most, digits.After(low.whole), &parts);
    return parts;
  }
  // The integers for which every fraction is within the range.
  std::string first = low.whole;
  if (!low.fraction.empty() || low.is_exclusive) {
    AppendFractions(low.whole, least, std::nullopt, digits.After(low.whole), &parts);
    first = Incremented(low.whole);
  }
  const std::string last = Decremented(high.whole);
  if (first.size() < last.size() || (first.size() == last.size() && first <= last)) {
    AppendWholes(first, last, digits, &parts);
  }
  AppendFractions(high.whole, {}, most, digits.After(high.whole), &parts);
  return parts;
}

}  // namespace

absl::StatusOr<std::string> NumberRange(const std::optional<NumberBound>& min,
                                        const std::optional<NumberBound>& max, bool is_integer) {
  ASSIGN_OR_RETURN(const SignedRange range, ReadRange(min, max));
  const FractionDigits digits{.is_integer = is_integer, .has_exclusive = range.has_exclusive};
  std::vector<std::string> parts;
  if (range.positive.has_value()) parts = SideParts(*range.positive, digits);
  if (range.negative.has_value()) {
    const std::vector<std::string> negative = SideParts(*range.negative, digits);
    if (!negative.empty()) parts.push_back("-" + AnyOfTexts(negative));
  }
  if (parts.empty()) return NothingBetween(is_integer ? "integer" : "number", min, max);
  return AnyOfTexts(parts);
}

namespace {

using Json = JsonValue;

constexpr std::array kBounds = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
constexpr int64_t kMaxMultiple = 256;           // factor of a grammar, which has as many rules
constexpr int64_t kMaxListedMultiples = 2'000;  // multiples between bounds that are listed

// An optional group is written {0,1} because for `(?:ba*)?` the engine also accepts "a".
// "-0" is not allowed.
constexpr char kInteger[] = "(?:0|-{0,1}[1-9][0-9]*)";
constexpr char kNumber[] =
    R"((?:0|-{0,1}[1-9][0-9]*|-{0,1}(?:0|[1-9][0-9]*)\.[0-9]+)(?:[eE][+-]{0,1}[0-9]+){0,1})";

std::optional<NumberBound> TighterBound(const Json& flat, const char* inclusive,
                                        const char* exclusive, bool is_lower) {
  const bool has_both = HasKeyword(flat, inclusive) && HasKeyword(flat, exclusive);
  bool is_exclusive = HasKeyword(flat, exclusive);
  if (has_both) {
    is_exclusive =
        is_lower ? flat[exclusive] >= flat[inclusive] : flat[exclusive] <= flat[inclusive];
  }
  if (!is_exclusive && !HasKeyword(flat, inclusive)) return std::nullopt;
  return NumberBound{.decimal = flat[is_exclusive ? exclusive : inclusive].dump(),
                     .is_exclusive = is_exclusive};
}

// Returns the positive multiples of `step`, with a rule for each remainder of the digits read so
// far.
GrammarExpr PositiveMultiples(int64_t step, SchemaOutput* output) {
  std::vector<int> rules;
  for (int64_t i = 0; i < step; ++i) rules.push_back(output->grammar.AddRule());
  const auto digits = [&](int64_t remainder, int first) {
    std::vector<GrammarExpr> ways;
    for (int digit = first; digit < 10; ++digit) {
      ways.push_back(Sequence(
          {TextExpr(absl::StrCat(digit)), RuleExpr(rules[(remainder * 10 + digit) % step])}));
    }
    return ways;
  };
  for (int64_t remainder = 0; remainder < step; ++remainder) {
    std::vector<GrammarExpr> ways = digits(remainder, 0);
    if (remainder == 0) ways.push_back(TextExpr(""));
    output->grammar.SetRule(rules[remainder], Choice(std::move(ways)));
  }
  return Choice(digits(0, 1));
}

// Returns the multiples that `multipleOf` asks for. Only integer factors are supported: multiples
// of fractions depend on rounding.
absl::StatusOr<GrammarExpr> Multiples(const Json& flat, const std::string& path,
                                      SchemaOutput* output) {
  const Json& factor = flat["multipleOf"];
  if (factor.get<double>() != std::floor(factor.get<double>()) || factor > 1e9) {
    return UnsupportedKeyword(path, "multipleOf",
                              absl::StrCat(" for ", factor.dump(), ", only for integers"));
  }
  const auto step = static_cast<int64_t>(factor.get<double>());
  double least = -std::numeric_limits<double>::infinity();
  double most = -least;
  for (const char* name : kBounds) {
    if (!HasKeyword(flat, name)) continue;
    const auto value = flat[name].get<double>();
    const bool is_lower = absl::EndsWith(name, "inimum");
    const double quotient = value / static_cast<double>(step);
    const double bound = is_lower ? std::ceil(quotient) : std::floor(quotient);
    const bool is_out =
        absl::StartsWith(name, "exclusive") && bound * static_cast<double>(step) == value;
    if (is_lower) least = std::max(least, bound + (is_out ? 1 : 0));
    if (!is_lower) most = std::min(most, bound - (is_out ? 1 : 0));
  }
  if (least > most) return output->None(path, "multipleOf", "has no multiple within the bounds");
  if (most - least < static_cast<double>(kMaxListedMultiples)) {
    if (std::max(std::abs(least), std::abs(most)) * static_cast<double>(step) > 9e15) {
      return UnsupportedKeyword(path, "multipleOf", " next to bounds above 9e15");
    }
    std::vector<GrammarExpr> all;
    for (auto i = static_cast<int64_t>(least); i <= static_cast<int64_t>(most); ++i) {
      all.push_back(TextExpr(absl::StrCat(i * step)));
    }
    return Choice(std::move(all));
  }
  const bool is_signed = std::isinf(least) && std::isinf(most);
  const bool is_natural = std::isinf(most) && (least == 0 || least == 1);
  if ((!is_signed && !is_natural) || step > kMaxMultiple) {
    return UnsupportedKeyword(path, "multipleOf",
                              absl::StrCat(" with so many values; allowed: up to ", kMaxMultiple,
                                           ", with a minimum of "
                                           "0 or without bounds, or up to ",
                                           kMaxListedMultiples, " multiples"));
  }
  GrammarExpr positive = PositiveMultiples(step, output);
  if (is_signed) positive = Sequence({Optional(TextExpr("-")), std::move(positive)});
  if (least == 1) return positive;
  return Choice({TextExpr("0"), std::move(positive)});
}

}  // namespace

GrammarExpr AnyJsonNumber() { return RegexExpr(kNumber); }

absl::StatusOr<GrammarExpr> NumberGrammar(const Json& flat, bool is_integer,
                                          const std::string& path, SchemaOutput* output) {
  const std::optional<NumberBound> min =
      TighterBound(flat, "minimum", "exclusiveMinimum", /*is_lower=*/true);
  const std::optional<NumberBound> max =
      TighterBound(flat, "maximum", "exclusiveMaximum", /*is_lower=*/false);
  if (HasKeyword(flat, "multipleOf")) return Multiples(flat, path, output);
  if (!min.has_value() && !max.has_value()) return RegexExpr(is_integer ? kInteger : kNumber);
  const absl::StatusOr<std::string> range = NumberRange(min, max, is_integer);
  if (range.ok()) {
    ASSIGN_OR_RETURN(const RegexNode node, ParseRegex(*range, RegexMode::kWhole));
    return RegexGrammar(node, TextForm::kPlain);
  }
  std::vector<const char*> names;
  absl::c_copy_if(kBounds, std::back_inserter(names),
                  [&](const char* name) { return HasKeyword(flat, name); });
  const std::string keywords = absl::StrJoin(names, ", ");
  if (absl::StartsWith(range.status().message(), "no ")) {
    return output->None(path, keywords, "leave no number");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("schema", path, ".", keywords, ": ", range.status().message()));
}

}  // namespace tandem
