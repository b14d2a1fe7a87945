#include "constraint/number_grammar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "constraint/number_range.h"
#include "constraint/regex_grammar.h"
#include "constraint/schema_keywords.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int64_t kMaxMultiple = 256;           // as a grammar: it has as many rules
constexpr int64_t kMaxListedMultiples = 2'000;  // between two bounds

// An optional group is written {0,1}: of `(?:ba*)?` the engine takes "a", too.
// There is no "-0".
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

// A rule for each remainder of the digits read so far.
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

// Integers alone: multiples of fractions are a matter of rounding.
absl::StatusOr<GrammarExpr> Multiples(const Json& flat, const std::string& path,
                                      SchemaOutput* output) {
  const Json& factor = flat["multipleOf"];
  if (factor.get<double>() != std::floor(factor.get<double>()) || factor > 1e9) {
    return UnsupportedKeyword(path, "multipleOf",
                              absl::StrCat(" of ", factor.dump(), ": only of integers"));
  }
  const auto step = static_cast<int64_t>(factor.get<double>());
  double least = -std::numeric_limits<double>::infinity();
  double most = -least;
  for (const auto& [name, sign] : {std::pair("minimum", 0), std::pair("exclusiveMinimum", 1)}) {
    if (!HasKeyword(flat, name)) continue;
    const double bound = std::ceil(flat[name].get<double>() / static_cast<double>(step));
    const bool is_on_it = bound * static_cast<double>(step) == flat[name].get<double>();
    least = std::max(least, bound + (sign != 0 && is_on_it ? 1 : 0));
  }
  for (const auto& [name, sign] : {std::pair("maximum", 0), std::pair("exclusiveMaximum", 1)}) {
    if (!HasKeyword(flat, name)) continue;
    const double bound = std::floor(flat[name].get<double>() / static_cast<double>(step));
    const bool is_on_it = bound * static_cast<double>(step) == flat[name].get<double>();
    most = std::min(most, bound - (sign != 0 && is_on_it ? 1 : 0));
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
                                           "0 or no bounds, or up to ",
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
  const absl::StatusOr<std::string> range =
      is_integer ? IntegerRange(min, max) : NumberRange(min, max);
  if (range.ok()) {
    ASSIGN_OR_RETURN(const RegexNode node, ParseRegex(*range, RegexMode::kWhole));
    return RegexGrammar(node, TextForm::kPlain);
  }
  std::vector<const char*> names;
  for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    if (HasKeyword(flat, name)) names.push_back(name);
  }
  const std::string keywords = absl::StrJoin(names, ", ");
  if (absl::StartsWith(range.status().message(), "no ")) {
    return output->None(path, keywords, "leave no number");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("schema", path, ".", keywords, ": ", range.status().message()));
}

}  // namespace tandem
