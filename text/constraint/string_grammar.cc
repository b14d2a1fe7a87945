#include "text/constraint/string_grammar.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "tandem/json_value.h"
#include "text/constraint/grammar_text.h"
#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema_keywords.h"

namespace tandem {
namespace {

constexpr size_t kMaxTrieDepth = 64;  // characters of a name

// The escapes of the characters that JSON strings must escape, one escape for each character.
constexpr char kPlainEscape[] = R"(\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f])))";
// All escapes. Surrogates come in pairs.
constexpr char kAnyEscape[] =
    R"(\\(?:["\\/bfnrt]|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|)"
    R"([dD](?:[0-7][0-9a-fA-F]{2}|[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))))";

// Returns the characters that JSON strings need not escape, except those in `without`.
std::string CharactersExcept(std::vector<CodePoints::Range> without) {
  without.insert(without.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  return RegexText(SetNode(Complement(CodePoints::Of(std::move(without)))), TextForm::kPlain);
}

// A character of a JSON string, with only one way to write each.
const std::string& PlainCharacter() {
  static const auto& text =
      *new std::string(absl::StrCat("(?:", CharactersExcept({}), "|", kPlainEscape, ")"));
  return text;
}

// A character of a JSON string, unescaped or as any of its escapes. Surrogates come in pairs.
const std::string& AnyJsonCharacter() {
  static const auto& text =
      *new std::string(absl::StrCat("(?:", CharactersExcept({}), "|", kAnyEscape, ")"));
  return text;
}

// Returns the characters of a name as they are written in JSON strings.
std::vector<std::string> CharactersOf(const std::string& name) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < name.size();) {
    size_t end = i + 1;
    while (end < name.size() && (name[end] & 0xc0) == 0x80) ++end;
    const std::string quoted = Json(name.substr(i, end - i)).dump();
    characters.push_back(quoted.substr(1, quoted.size() - 2));
    i = end;
  }
  return characters;
}

// Returns the texts that may follow the prefix at `node` so that the name is not in the trie.
//   room: number of characters that may still follow; -1: unlimited
std::string Continuations(const NameTrie& node, int64_t room) {
  std::vector<CodePoints::Range> first;  // the names' next characters
  std::string ways;
  bool has_escapes = false;
  for (const auto& [character, next] : node.next) {
    const bool is_escape = character[0] == '\\';
    has_escapes |= is_escape;
    const char32_t code = ReadUtf8(character).code_point;
    if (!is_escape) first.emplace_back(code, code);
    const bool is_dead_end = next.is_prefix || (next.is_name && room == 1);
    if (is_dead_end) continue;
    absl::StrAppend(&ways, "|", RegexText(LiteralNode(character), TextForm::kPlain),
                    "(?:", Continuations(next, room < 0 ? -1 : room - 1), ")",
                    next.is_name ? "" : "{0,1}");
  }
  std::string others = CharactersExcept(std::move(first));
  if (!has_escapes) absl::StrAppend(&others, "|", kPlainEscape);
  return absl::StrCat("(?:", others, ")", PlainCharacter(), "*", ways);
}

using Json = JsonValue;

constexpr int64_t kMaxCounted = 32;  // characters that an expression counts itself

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

std::string AnyOfPatterns(std::initializer_list<absl::string_view> patterns) {
  return absl::StrCat("(?:", absl::StrJoin(patterns, "|"), ")");
}

std::string DatePattern() {
  const std::string year = "(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])";
  const std::string long_months = "(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])";
  const std::string short_months = "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)";
  const std::string february = "02-(?:0[1-9]|1\\d|2[0-8])";
  // Multiples of 4 from 04 to 96: leap years of a century, or centuries that begin with a leap
  // year.
  const std::string fours = "(?:0[48]|[2468][048]|[13579][26])";
  return AnyOfPatterns(
      {absl::StrCat(year, "-", AnyOfPatterns({long_months, short_months, february})),
       absl::StrCat("(?:\\d\\d", fours, "|", fours, "00)-02-29")});
}

std::string TimePattern() {
  const std::string hour_and_minute = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  return absl::StrCat(hour_and_minute, ":[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]", hour_and_minute, ")");
}

std::string DurationPattern() {
  const std::string number = "\\d{1,6}";
  const auto unit = [&](absl::string_view letter, absl::string_view smaller) {
    const std::string rest = smaller.empty() ? "" : absl::StrCat("(?:", smaller, ")?");
    return absl::StrCat(number, letter, rest);
  };
  const std::string seconds = unit("S", "");
  const std::string minutes = unit("M", seconds);
  const std::string time = "T" + AnyOfPatterns({unit("H", minutes), minutes, seconds});
  const std::string days = unit("D", "");
  const std::string months = unit("M", days);
  const std::string date =
      absl::StrCat(AnyOfPatterns({unit("Y", months), months, days}), "(?:", time, ")?");
  return "P" + AnyOfPatterns({date, time, unit("W", "")});
}

// Returns a label of a host name, with single hyphens within or none. It has at most
// 2 * `most_pairs` + 1 characters.
std::string LabelPattern(absl::string_view first, int most_pairs) {
  return absl::StrCat(first, "(?:(?:-?[A-Za-z0-9]){0,", most_pairs, "}|[A-Za-z0-9]{",
                      most_pairs + 1, ",", 2 * most_pairs, "})");
}
constexpr char kLetterOrDigit[] = "[A-Za-z0-9]";
constexpr char kAsciiLetter[] = "[A-Za-z]";

// At most 3 labels of 63 characters or 8 of 29, which is at most 247 characters. RFC 1035 allows
// 253.
std::string HostnamePattern() {
  const auto labels = [](int most_pairs, absl::string_view counts) {
    return absl::StrCat("(?:", LabelPattern(kLetterOrDigit, most_pairs), "\\.){", counts, "}",
                        LabelPattern(kAsciiLetter, most_pairs));
  };
  return AnyOfPatterns({labels(31, "0,2"), labels(14, "3,7")});
}

std::string EmailPattern() {
  const std::string text = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  const std::string local =
      absl::StrCat("(?:", text, "{1,64}|", text, "{1,20}(?:\\.", text, "{1,20}){1,2})");
  // With the local part this is within the 254 characters of RFC 5321: 65 + 2 * 64 + 24.
  const std::string domain =
      absl::StrCat("(?:", LabelPattern(kLetterOrDigit, 31), "\\.){1,2}", "[A-Za-z]{2,24}");
  return absl::StrCat(local, "@", domain);
}

std::string Ipv4Pattern() {
  const std::string octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return absl::StrCat(octet, "(?:\\.", octet, "){3}");
}

// RFC 3986 section 3.2.2, IPv6address.
std::string Ipv6Pattern() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last_two = AnyOfPatterns({absl::StrCat(group, ":", group), Ipv4Pattern()});
  const auto before = [&](int most) {  // at most `most` groups before `::`
    if (most == 0) return std::string();
    if (most == 1) return absl::StrCat("(?:", group, ")?");
    return absl::StrCat("(?:(?:", group, ":){0,", most - 1, "}", group, ")?");
  };
  const auto after = [&](int exactly) {
    return exactly == 0 ? std::string() : absl::StrCat("(?:", group, ":){", exactly, "}");
  };
  std::string pattern = absl::StrCat("(?:", after(6), last_two);
  for (int i = 0; i <= 5; ++i) {
    absl::StrAppend(&pattern, "|", before(i), "::", after(5 - i), last_two);
  }
  absl::StrAppend(&pattern, "|", before(6), "::", group, "|", before(7), "::)");
  return pattern;
}

constexpr char kHexPair[] = "%[0-9A-Fa-f]{2}";

// The parts of URIs, named as in RFC 3986.
struct UriParts {
  UriParts() {
    const std::string pchar = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|", kHexPair, ")");
    const std::string no_colon = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=@-]|", kHexPair, ")");
    const std::string user = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:-]|", kHexPair, ")");
    const std::string name = absl::StrCat("(?:", kLetterOrDigit, "(?:-?", kLetterOrDigit, ")*\\.)*",
                                          kAsciiLetter, "(?:-?", kLetterOrDigit, ")*");
    const std::string host =
        AnyOfPatterns({name, Ipv4Pattern(), absl::StrCat("\\[", Ipv6Pattern(), "\\]")});
    const std::string authority =
        absl::StrCat("(?:", user, "+@)?", host, "(?::(?:\\d{1,4}|[1-5]\\d{4}))?");
    const std::string path_abempty = absl::StrCat("(?:/", pchar, "*)*");
    // A path after an empty authority, such as file:///etc.
    const std::string with_authority =
        absl::StrCat("//(?:", authority, path_abempty, "|/(?:", pchar, "+", path_abempty, ")?)");
    const std::string path_absolute = absl::StrCat("/(?:", pchar, "+", path_abempty, ")?");
    const std::string query_and_fragment =
        absl::StrCat("(?:\\?(?:", pchar, "|[/?])*)?(?:#(?:", pchar, "|[/?])*)?");
    uri = absl::StrCat("[A-Za-z][A-Za-z0-9+.-]*:",
                       AnyOfPatterns({with_authority, path_absolute, pchar + "+" + path_abempty}),
                       query_and_fragment);
    relative = absl::StrCat(
        AnyOfPatterns({with_authority, path_absolute, no_colon + "+" + path_abempty, ""}),
        query_and_fragment);
  }

  std::string uri{};
  std::string relative{};
};

}  // namespace

void NameTrie::Add(const std::string& name, bool as_prefix) {
  NameTrie* at = this;
  const std::vector<std::string> characters = CharactersOf(name);
  for (size_t i = 0; i < characters.size() && i < kMaxTrieDepth; ++i) {
    at = &at->next[characters[i]];
  }
  as_prefix |= characters.size() > kMaxTrieDepth;
  at->is_name = true;
  at->is_prefix |= as_prefix;
}

const NameTrie* NameTrie::Find(const std::string& name) const {
  const NameTrie* at = this;
  for (const std::string& character : CharactersOf(name)) {
    if (at->is_prefix) return at;
    const auto it = at->next.find(character);
    if (it == at->next.end()) return nullptr;
    at = &it->second;
  }
  return at;
}

std::string NameExcept(const NameTrie& names, int64_t max) {
  if (!names.has_any()) return absl::StrCat(PlainCharacter(), "*");
  return absl::StrCat("(?:", Continuations(names, max), ")", names.is_name ? "" : "{0,1}");
}

// The content of a string between its quotes.
struct StringGrammar::Content {
  RegexNode regex{};      // of the content, or of one character if there are ranges
  bool is_any = false;    // whether all characters and escapes are allowed
  LengthRanges ranges{};  // allowed numbers of characters
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

// Returns the content and the quote after it. Its length is counted by means of a mark if the
// content is the only string here and, with `is_shared`, if the expression itself can enforce the
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

// The engine reports the highest mark of the rules that are followed at once. That has to be the
// mark with the smallest maximum, to which the strings of the other rules then keep, too.
void StringGrammar::NumberMarks(std::vector<LengthRanges>* lengths) {
  std::vector<std::pair<int64_t, int>> order;  // by decreasing maximum
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

// Returns nullopt if no string is valid for the schema.
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

const char* PatternOfFormat(absl::string_view format) {
  static const auto& patterns = *new std::map<std::string, std::string>([] {
    const std::string date = DatePattern();
    const std::string time = TimePattern();
    const std::string pointer = "(?:/(?:[^/~]|~[01])*)*";
    const UriParts uris;
    return std::map<std::string, std::string>{
        {"date", date},
        {"time", time},
        {"date-time", absl::StrCat(date, "T", time)},
        {"duration", DurationPattern()},
        {"hostname", HostnamePattern()},
        {"email", EmailPattern()},
        {"ipv4", Ipv4Pattern()},
        {"ipv6", Ipv6Pattern()},
        {"uri", uris.uri},
        {"uri-reference", AnyOfPatterns({uris.uri, uris.relative})},
        // These formats allow more than the patterns.
        {"iri", uris.uri},
        {"iri-reference", AnyOfPatterns({uris.uri, uris.relative})},
        {"idn-hostname", HostnamePattern()},
        {"idn-email", EmailPattern()},
        {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
        {"json-pointer", pointer},
        {"relative-json-pointer", absl::StrCat("(?:0|[1-9]{1,8}0?)(?:#|", pointer, ")")},
    };
  }());
  const auto found = patterns.find(std::string(format));
  return found == patterns.end() ? nullptr : found->second.c_str();
}

}  // namespace tandem
