#include "constraint/string_grammar.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "constraint/json_names.h"
#include "constraint/regex_grammar.h"
#include "constraint/schema_keywords.h"
#include "constraint/string_formats.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int64_t kMaxCounted = 32;  // characters that a grammar counts by itself

bool IsWithin(const LengthRanges& ranges, const std::string& text) {
  StringProgress progress;
  const std::string written = Json(text).dump();
  for (const char byte : absl::string_view(written).substr(1)) progress.Add(byte);
  return AreWithin(ranges, progress);
}

GrammarExpr RepeatedCharacter(const std::string& character, int64_t min, int64_t max) {
  if (max < 0 && min <= kMaxCounted) {
    return RegexExpr(absl::StrCat(character, "{", min, "}", character, "*"));
  }
  if (max >= 0 && max <= kMaxCounted) {
    return max == 0 ? TextExpr("") : RegexExpr(absl::StrCat(character, "{", min, ",", max, "}"));
  }
  return Repeat(RegexExpr(character), min, max);
}

}  // namespace

// The content of a string, between its quotes.
struct StringGrammar::Content {
  RegexNode regex{};      // of the content, or of one character of it, if there are ranges
  bool is_any = false;    // any character, as itself or as any escape
  LengthRanges ranges{};  // so many characters
};

GrammarExpr AnyJsonString() {
  return Sequence({TextExpr("\""), RegexExpr(absl::StrCat(AnyJsonCharacter(), "*\""))});
}

GrammarExpr BeforeQuote(GrammarExpr content) {
  if (content.kind != GrammarExpr::Kind::kRegex) {
    return Sequence({std::move(content), TextExpr("\"")});
  }
  return RegexExpr(absl::StrCat("(?:", content.text, ")\""));
}

absl::StatusOr<GrammarExpr> StringGrammar::Strings(const std::vector<Json>& flats,
                                                   const std::string& path, bool is_shared,
                                                   Json* literals) {
  std::vector<Content> contents;
  for (const Json& flat : flats) {
    ASSIGN_OR_RETURN(std::optional<Content> content, ContentOf(flat, path));
    if (!content.has_value()) continue;
    const auto same =
        absl::c_find_if(contents, [&](const Content& c) { return c.is_any && content->is_any; });
    if (same == contents.end()) {
      contents.push_back(*std::move(content));
    } else {
      absl::c_copy(content->ranges, std::back_inserter(same->ranges));
      same->ranges = JoinedRanges(same->ranges);
    }
  }
  Json others = Json::array();
  bool has_other_strings = false;
  for (const Json& value : *literals) {
    const bool is_covered =
        value.is_string() && absl::c_any_of(contents, [&](const Content& content) {
          return content.is_any && IsWithin(content.ranges, value.get<std::string>());
        });
    if (!is_covered) others.push_back(value);
    has_other_strings |= !is_covered && value.is_string();
  }
  *literals = std::move(others);
  const bool is_alone = contents.size() == 1 && !has_other_strings;
  std::vector<GrammarExpr> all;
  for (const Content& content : contents) {
    all.push_back(Sequence({TextExpr("\""), Closed(content, is_shared, is_alone)}));
  }
  return Choice(std::move(all));
}

// The content and the quote after it. Counted by a mark where that is right: the content is the
// only string here, and what other structures are followed at once (`is_shared`) differ in no
// minimum.
GrammarExpr StringGrammar::Closed(const Content& content, bool is_shared, bool is_alone) {
  const GrammarExpr quote = TextExpr("\"");
  if (content.ranges.empty()) {
    return BeforeQuote(RegexGrammar(content.regex, TextForm::kJson));
  }
  const std::string character =
      content.is_any ? AnyJsonCharacter()
                     : absl::StrCat("(?:", RegexText(content.regex, TextForm::kJson), ")");
  const auto [min, max] = content.ranges[0];
  const bool has_mark = is_alone && (content.ranges.size() > 1 || max > 1 || min > 1) &&
                        (!is_shared || (content.ranges.size() == 1 && min <= kMaxCounted));
  if (has_mark) {
    const std::string least = is_shared && min > 1 ? absl::StrCat(character, "{", min, "}") : "";
    const bool is_plus = is_shared && min == 1;
    return Marked(RegexExpr(absl::StrCat(least, character, is_plus ? "+\"" : "*\"")),
                  content.ranges);
  }
  std::vector<GrammarExpr> all;
  for (const auto& [least, most] : content.ranges) {
    if (most < 0 && least <= 1) {
      all.push_back(RegexExpr(absl::StrCat(character, least == 0 ? "*\"" : "+\"")));
    } else {
      all.push_back(Sequence({RepeatedCharacter(character, least, most), quote}));
    }
  }
  return Choice(std::move(all));
}

GrammarExpr StringGrammar::Marked(GrammarExpr expr, const LengthRanges& ranges) {
  const auto [it, is_new] = marked_.try_emplace({expr.text, ranges}, -1);
  if (is_new) {
    it->second = output_->grammar.AddRule();
    marks_.push_back(ranges);
    output_->grammar.SetRule(it->second, std::move(expr), static_cast<int>(marks_.size()));
  }
  return RuleExpr(it->second);
}

// Where several rules with marks are followed at once, the engine tells the highest mark. It has
// to be that of the least maximum, which the others then keep to as well.
void StringGrammar::NumberMarks(std::vector<LengthRanges>* lengths) {
  std::vector<std::pair<int64_t, int>> order;  // the last is the least
  for (size_t i = 0; i < marks_.size(); ++i) {
    const int64_t max = marks_[i].back().second;
    order.emplace_back(max < 0 ? INT64_MIN : -max, static_cast<int>(i));
  }
  absl::c_sort(order);
  std::vector<int> new_marks(marks_.size() + 1);
  for (const auto& [max, i] : order) {
    lengths->push_back(marks_[i]);
    new_marks[i + 1] = static_cast<int>(lengths->size());
  }
  output_->grammar.ChangeMarks(new_marks);
}

// Nullopt if no string keeps to it.
absl::StatusOr<std::optional<StringGrammar::Content>> StringGrammar::ContentOf(
    const Json& flat, const std::string& path) {
  const int64_t min = CountOr(flat, "minLength", 0);
  const int64_t max = CountOr(flat, "maxLength", -1);
  if (max >= 0 && max < min) {
    output_->None(path, "maxLength", "is below minLength");
    return std::optional<Content>();
  }
  if (!HasKeyword(flat, "pattern") && !HasKeyword(flat, "format")) {
    return std::optional<Content>({.is_any = true, .ranges = {{min, max}}});
  }
  if (HasKeyword(flat, "pattern") && HasKeyword(flat, "format")) {
    return UnsupportedKeyword(path, "pattern", " next to format");
  }
  const char* const keyword = HasKeyword(flat, "pattern") ? "pattern" : "format";
  const auto text = flat[keyword].get<std::string>();
  absl::StatusOr<RegexNode> node = HasKeyword(flat, "pattern")
                                       ? ParseRegex(text, RegexMode::kJsonSchema)
                                       : ParseRegex(PatternOfFormat(text), RegexMode::kWhole);
  if (!node.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema", path, ".", keyword, ": ", node.status().message()));
  }
  const std::optional<RegexNode> bounded = WithLengths(*node, min, max);
  if (!bounded.has_value()) {
    return UnsupportedKeyword(path, HasKeyword(flat, "minLength") ? "minLength" : "maxLength",
                              absl::StrCat(" next to this ", keyword));
  }
  const auto [shortest, longest] = LengthsOf(*bounded);
  if (longest >= 0 && longest < shortest) return std::optional<Content>();
  if (bounded->kind == RegexNode::Kind::kRepeat &&
      bounded->children[0].kind == RegexNode::Kind::kCodePoints) {
    return std::optional<Content>(
        {.regex = bounded->children[0], .ranges = {{bounded->min, bounded->max}}});
  }
  return std::optional<Content>({.regex = *bounded});
}

}  // namespace tandem
