#include "text/constraint/schema_grammar.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "text/constraint/grammar_text.h"
#include "text/constraint/json_schema.h"
#include "text/constraint/number_grammar.h"
#include "text/constraint/schema_keywords.h"
#include "text/constraint/string_grammar.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kMaxRules = 50'000;
constexpr int64_t kMaxKeyBytes = int64_t{64} << 20;  // text of schemas as keys of rules
constexpr int64_t kMaxCountedStates = 20'000;        // named properties times counts

// Writes JSON in one line, as models do: `{"a": 1, "b": [2, 3]}`.
std::string JsonInOneLine(const JsonValue& value) {
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& element : value.items()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    value.is_object() ? absl::StrCat(JsonValue(element.key()).dump(), ": ") : "",
                    JsonInOneLine(element.value()));
  }
  return value.is_object() ? absl::StrCat("{", text, "}") : absl::StrCat("[", text, "]");
}

GrammarExpr Literal(const Json& value) { return TextExpr(JsonInOneLine(value)); }

// The properties of an object.
struct ObjectParts {
  struct Property {
    GrammarExpr pair;  // its name and value
    bool is_required = false;
  };
  std::vector<Property> named{};
  GrammarExpr other{};  // name and value of another property
  int64_t min = 0;      // smallest number of properties
  int64_t max = -1;     // largest number; -1: unlimited
};

// Returns the grammar of the other members after `count` members.
GrammarExpr OthersAfter(const ObjectParts& parts, int64_t count) {
  const int64_t missing = std::max<int64_t>(parts.min - count, 0);
  if (missing > 1 || (missing > 0 && parts.other.is_nothing())) return {};
  const int64_t room = parts.max < 0 ? -1 : parts.max - count;
  if (room == 0 || parts.other.is_nothing()) return missing == 0 ? TextExpr("") : GrammarExpr();
  const GrammarExpr next = Sequence({TextExpr(", "), parts.other});
  if (count > 0) return Repeat(next, missing, room);
  GrammarExpr some = Sequence({parts.other, Repeat(next, 0, room < 0 ? -1 : room - 1)});
  return missing > 0 ? some : Optional(std::move(some));
}

// Returns the grammar of an object whose members are counted up to `most`. Without a maximum,
// `most` stands for all larger counts, too.
GrammarExpr Counted(const ObjectParts& parts, bool counts_max, int64_t most, SchemaOutput* output) {
  // tails[n]: the text after n members.
  std::vector<GrammarExpr> tails;
  for (int64_t n = 0; n <= most; ++n) tails.push_back(OthersAfter(parts, n));
  for (auto it = parts.named.rbegin(); it != parts.named.rend(); ++it) {
    std::vector<GrammarExpr> before;
    for (int64_t n = 0; n <= most; ++n) {
      const bool may_come = n < most || !counts_max;
      std::vector<GrammarExpr> ways;
      if (may_come) {
        ways.push_back(
            Sequence({TextExpr(n == 0 ? "" : ", "), it->pair, tails[std::min(n + 1, most)]}));
      }
      if (!it->is_required) ways.push_back(tails[n]);
      GrammarExpr here = Choice(std::move(ways));
      if (!here.is_nothing()) {
        const int rule = output->grammar.AddRule();
        output->grammar.SetRule(rule, std::move(here));
        here = RuleExpr(rule);
      }
      before.push_back(std::move(here));
    }
    tails = std::move(before);
  }
  return Sequence({TextExpr("{"), tails[0], TextExpr("}")});
}

// Returns the grammar of an object in one line: named properties in their order, then others.
// Optional properties may be left out. INVALID_ARGUMENT names minProperties or maxProperties if
// counting would take too many rules, or would have to count other names, which may repeat.
absl::StatusOr<GrammarExpr> ObjectGrammar(const ObjectParts& parts, const std::string& path,
                                          SchemaOutput* output) {
  const auto num_named = static_cast<int64_t>(parts.named.size());
  const int64_t num_required = absl::c_count_if(
      parts.named, [](const ObjectParts::Property& property) { return property.is_required; });
  const bool has_other = !parts.other.is_nothing();
  if (parts.max >= 0 && (num_required > parts.max || parts.min > parts.max)) {
    return output->None(path, "maxProperties", "is below minProperties or the required ones");
  }
  // Another name may be written twice and then counts as one property.
  if (parts.min > num_named + (has_other ? 1 : 0)) {
    if (!has_other) return output->None(path, "minProperties", "exceeds the possible properties");
    return UnsupportedKeyword(
        path, "minProperties",
        absl::StrCat(" of ", parts.min, " with ", num_named, " named properties"));
  }
  const bool counts_min = parts.min > num_required;
  const bool counts_max = parts.max >= 0 && (has_other || parts.max < num_named);
  // Without counts, only the first member differs: no comma comes before it.
  if (!counts_min && !counts_max) {
    return Counted({.named = parts.named, .other = parts.other}, false, 1, output);
  }
  const int64_t most = counts_max ? std::min(parts.max, num_named) : parts.min;
  if (num_named * (most + 1) > kMaxCountedStates) {
    return UnsupportedKeyword(path, counts_min ? "minProperties" : "maxProperties",
                              absl::StrCat(" with as many as ", num_named, " properties"));
  }
  return Counted(parts, counts_max, most, output);
}

// Converts one schema. Thread-compatible.
class Converter {
 public:
  Converter(const Json& root, const SchemaGrammarOptions& options,
            std::vector<LengthRanges>* lengths)
      : root_(root), options_(options), schema_(&root, options.is_strict), lengths_(lengths) {}

  absl::StatusOr<std::string> Convert() {
    RETURN_IF_ERROR(schema_.Check());
    ASSIGN_OR_RETURN(const GrammarExpr root,
                     Value(root_, "", /*is_shared=*/options_.is_one_of_several));
    // Rules need further rules. Write them in a loop: recursion could be thousands of references
    // deep.
    for (; !wanted_.empty(); wanted_.pop_front()) {
      const Wanted& wanted = wanted_.front();
      ASSIGN_OR_RETURN(const Flats flats, schema_.Alternatives(wanted.schema, wanted.path));
      ASSIGN_OR_RETURN(GrammarExpr value, AnyOf(flats, wanted.path, wanted.is_shared));
      output_.grammar.SetRule(wanted.rule, std::move(value));
    }
    strings_.NumberMarks(lengths_);
    const std::string text = output_.grammar.Write(root);
    if (!text.empty()) return text;
    const std::string why = output_.why.empty() ? schema_.contradiction() : output_.why;
    return absl::InvalidArgumentError(
        absl::StrCat("schema: no value satisfies it",
                     why.empty() ? ": every value would contain itself by $ref" : ": ", why));
  }

 private:
  using Flats = std::vector<Json>;

  // Returns the values of `schema`. `is_shared`: values of other schemas are possible at the same
  // position.
  absl::StatusOr<GrammarExpr> Value(const Json& schema, const std::string& path, bool is_shared) {
    if (schema == false) return GrammarExpr();
    // Equal schemas share a rule, which also ends recursion.
    const std::string key = absl::StrCat(is_shared ? "+" : "-", schema.dump());
    num_key_bytes_ += static_cast<int64_t>(key.size());
    if (num_key_bytes_ > kMaxKeyBytes || output_.grammar.num_rules() > kMaxRules) {
      return absl::InvalidArgumentError("schema: is too large with its references expanded");
    }
    const auto [it, is_new] = rules_.try_emplace(key, -1);
    if (is_new) {
      it->second = output_.grammar.AddRule();
      wanted_.push_back({it->second, schema, path, is_shared});
    }
    return RuleExpr(it->second);
  }

  absl::StatusOr<GrammarExpr> AnyOf(const Flats& flats, const std::string& path, bool is_shared) {
    std::vector<GrammarExpr> all;
    Json literals = Json::array();
    Flats strings;
    Flats structures;
    bool has_any = false;
    for (const Json& flat : flats) {
      if (HasKeyword(flat, "const") || HasKeyword(flat, "enum")) {
        RETURN_IF_ERROR(AddListed(flat, path, &literals));
        continue;
      }
      if (flat.empty()) {
        has_any = true;
        continue;
      }
      for (const std::string& type : JsonSchema::TypesOf(flat)) {
        if (type == "null") all.push_back(TextExpr("null"));
        if (type == "boolean") all.push_back(Choice({TextExpr("true"), TextExpr("false")}));
        if (type == "string") strings.push_back(flat);
        if (type == "integer" || type == "number") {
          ASSIGN_OR_RETURN(all.emplace_back(),
                           NumberGrammar(flat, type == "integer", path, &output_));
        }
        if (type == "array" || type == "object") {
          structures.push_back(flat);
          structures.back()["type"] = type;
        }
      }
    }
    if (has_any) return AnyValue();  // includes all others
    ASSIGN_OR_RETURN(all.emplace_back(), strings_.Strings(strings, path, is_shared, &literals));
    for (const Json& value : literals) {
      all.push_back(Literal(value));
      is_shared |= value.is_structured();
    }
    is_shared |= NumOf(structures, "object") > 1 || NumOf(structures, "array") > 1;
    for (const Json& flat : structures) {
      const bool is_object = IsText(flat["type"], "object");
      ASSIGN_OR_RETURN(all.emplace_back(),
                       is_object ? Object(flat, path, is_shared) : Array(flat, path, is_shared));
    }
    return Choice(std::move(all));
  }

  static int64_t NumOf(const Flats& flats, const char* type) {
    return absl::c_count_if(flats, [type](const Json& flat) { return IsText(flat["type"], type); });
  }

  // Returns the values of `enum` or `const` that the other keywords allow.
  absl::StatusOr<Json> ValidListedValues(const Json& flat, const std::string& path) {
    // Remove the list, which would be copied and searched for each of its values.
    Json rest = flat;
    rest.erase(HasKeyword(flat, "const") ? "const" : "enum");
    Json valid = Json::array();
    for (const Json& value : ListedValues(flat)) {
      ASSIGN_OR_RETURN(const bool is_valid, schema_.IsValid(value, rest, path));
      if (is_valid) valid.push_back(value);
    }
    return valid;
  }

  absl::Status AddListed(const Json& flat, const std::string& path, Json* literals) {
    ASSIGN_OR_RETURN(const Json valid, ValidListedValues(flat, path));
    literals->insert(literals->end(), valid.begin(), valid.end());
    if (valid.empty()) {
      output_.None(path, HasKeyword(flat, "const") ? "const" : "enum",
                   "has no value that the other keywords allow");
    }
    return absl::OkStatus();
  }

  // Returns the grammar of any JSON value in one line.
  GrammarExpr AnyValue() {
    if (any_rule_ >= 0) return RuleExpr(any_rule_);
    any_rule_ = output_.grammar.AddRule();
    const GrammarExpr value = RuleExpr(any_rule_);
    const GrammarExpr pair = Sequence({AnyJsonString(), TextExpr(": "), value});
    output_.grammar.SetRule(
        any_rule_,
        Choice({TextExpr("null"), TextExpr("true"), TextExpr("false"), AnyJsonNumber(),
                AnyJsonString(), List("[", value, "]", 0, -1), List("{", pair, "}", 0, -1)}));
    return RuleExpr(any_rule_);
  }

  static GrammarExpr List(const char* begin, const GrammarExpr& element, const char* end,
                          int64_t min, int64_t max) {
    GrammarExpr some =
        Sequence({element, Repeat(Sequence({TextExpr(", "), element}),
                                  std::max<int64_t>(min - 1, 0), max < 0 ? -1 : max - 1)});
    if (max == 0) some = TextExpr("");
    if (min == 0 && max != 0) some = Optional(std::move(some));
    return Sequence({TextExpr(begin), std::move(some), TextExpr(end)});
  }

  // ---- Arrays ----

  absl::StatusOr<GrammarExpr> Array(const Json& flat, const std::string& path, bool is_shared) {
    const int64_t min = CountOr(flat, "minItems", 0);
    int64_t max = CountOr(flat, "maxItems", -1);
    if (HasKeyword(flat, "uniqueItems") && (max < 0 || max > 1)) {
      return UnsupportedKeyword(path, "uniqueItems", " for arrays of two items or more");
    }
    if (max >= 0 && max < min) return output_.None(path, "maxItems", "is below minItems");
    const Json none = Json::array();
    const Json& first = HasKeyword(flat, "prefixItems") ? flat["prefixItems"] : none;
    const char* const others = HasKeyword(flat, "items") ? "items" : "unevaluatedItems";
    Json rest =
        HasKeyword(flat, others) ? flat[others] : Json(first.empty() || !options_.is_strict);
    ASSIGN_OR_RETURN(const GrammarExpr element,
                     Value(rest, absl::StrCat(path, ".", others), is_shared));
    std::vector<GrammarExpr> elements;
    for (const auto& item : first.items()) {
      ASSIGN_OR_RETURN(
          GrammarExpr value,
          Value(item.value(), absl::StrCat(path, ".prefixItems.", item.key()), is_shared));
      if (value.is_nothing()) {
        const auto limit = static_cast<int64_t>(elements.size());
        max = max < 0 ? limit : std::min(max, limit);
        break;
      }
      elements.push_back(std::move(value));
    }
    if (max >= 0 && max < min) {
      return output_.None(path, "prefixItems", "has an item without a value");
    }
    if (elements.empty()) {
      if (element.is_nothing() && min > 0) {
        return output_.None(path, "minItems", "requires items, but none are possible");
      }
      if (element.is_nothing()) return TextExpr("[]");
      return List("[", element, "]", min, max);
    }
    const auto num_first = static_cast<int64_t>(elements.size());
    GrammarExpr tail = TextExpr("");
    if (!element.is_nothing() && (max < 0 || max > num_first)) {
      tail = Repeat(Sequence({TextExpr(", "), element}), std::max<int64_t>(min - num_first, 0),
                    max < 0 ? -1 : max - num_first);
    } else if (min > num_first) {
      return output_.None(path, "minItems", "requires more items than are possible");
    }
    for (int64_t i = num_first - 1; i >= 0; --i) {
      if (max >= 0 && i >= max) continue;
      GrammarExpr here = Sequence({TextExpr(i == 0 ? "" : ", "), elements[i], std::move(tail)});
      tail = i < min ? std::move(here) : Optional(std::move(here));
    }
    return Sequence({TextExpr("["), std::move(tail), TextExpr("]")});
  }

  // ---- Objects ----

  absl::StatusOr<GrammarExpr> Object(const Json& flat, const std::string& path, bool is_shared) {
    ObjectParts parts{.min = CountOr(flat, "minProperties", 0),
                      .max = CountOr(flat, "maxProperties", -1)};
    ASSIGN_OR_RETURN(const bool is_possible, AddNamed(flat, path, is_shared, &parts));
    if (!is_possible) return GrammarExpr();
    ASSIGN_OR_RETURN(parts.other, OtherPairs(flat, path, is_shared));
    return ObjectGrammar(parts, path, &output_);
  }

  static const Json& Member(const Json& flat, const char* name) {
    static const Json& none = *new Json(Json::object());
    const auto it = flat.find(name);
    return it == flat.end() ? none : *it;
  }

  // Returns the schema of properties that a flat schema does not name.
  Json OtherValues(const Json& flat) const {
    const Json* const others = OthersOf(flat);
    if (others != nullptr) return *others;
    return !options_.is_strict || HasKeyword(flat, "propertyNames");
  }

  // Adds the named properties. Returns false if a required one has no value.
  absl::StatusOr<bool> AddNamed(const Json& flat, const std::string& path, bool is_shared,
                                ObjectParts* parts) {
    Json named = Member(flat, "properties");
    std::set<std::string> known;
    for (const auto& property : named.items()) known.insert(property.key());
    std::set<std::string> required;
    for (const Json& element : Member(flat, "required")) {
      const auto name = element.get<std::string>();
      required.insert(name);
      if (known.insert(name).second) named.push_back({name, nullptr});
    }
    for (const auto& [name, schema] : named.items()) {
      Json all = Json::array();
      if (!schema.is_null()) all.push_back(schema);
      for (const auto& [pattern, other] : Member(flat, "patternProperties").items()) {
        ASSIGN_OR_RETURN(const bool is_match, JsonSchema::Contains(name, pattern));
        if (is_match) all.push_back(other);
      }
      if (all.empty()) {
        const Json* const others = OthersOf(flat);
        all.push_back(others != nullptr ? *others : Json(true));
      }
      GrammarExpr value;
      bool is_name = true;
      if (HasKeyword(flat, "propertyNames")) {
        ASSIGN_OR_RETURN(is_name, schema_.IsValid(Json(name), flat["propertyNames"], path));
      }
      if (is_name) {
        const Json whole = all.size() == 1 ? all[0] : Json{{"allOf", all}};
        ASSIGN_OR_RETURN(value, Value(whole, absl::StrCat(path, ".properties.", name), is_shared));
      }
      if (value.is_nothing() && required.contains(name)) {
        output_.None(path, "required",
                     absl::StrCat("names ", Quoted(name), ", which has no value"));
        return false;
      }
      if (value.is_nothing()) continue;
      parts->named.push_back(
          {.pair = Sequence({TextExpr(absl::StrCat(Json(name).dump(), ": ")), std::move(value)}),
           .is_required = required.contains(name)});
    }
    return true;
  }

  // Returns the literal text with which every match of a pattern that begins with `^` begins; empty
  // for other patterns.
  static std::string LiteralBeginning(const std::string& pattern) {
    if (pattern.empty() || pattern[0] != '^') return "";
    size_t length = 1;
    const auto is_plain = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
             c == ' ' || c == ':' || c == '/' || c == '@';
    };
    if (pattern.find('|') != std::string::npos) return "";
    while (length < pattern.size() && is_plain(pattern[length])) ++length;
    // A quantifier applies to the last character.
    if (length < pattern.size() && absl::StrContains("*?{", pattern.substr(length, 1))) --length;
    return pattern.substr(1, length - 1);
  }

  absl::StatusOr<GrammarExpr> OtherPairs(const Json& flat, const std::string& path,
                                         bool is_shared) {
    std::vector<GrammarExpr> pairs;
    const Json& patterns = Member(flat, "patternProperties");
    for (const auto& [pattern, schema] : patterns.items()) {
      ASSIGN_OR_RETURN(pairs.emplace_back(), PatternPair(flat, pattern, path, is_shared));
    }
    const Json others = OtherValues(flat);
    if (others == false) return Choice(std::move(pairs));
    const bool is_asked_for = HasKeyword(flat, "additionalProperties");
    NameTrie names;
    for (const auto& property : Member(flat, "properties").items()) {
      names.Add(property.key(), /*as_prefix=*/false);
    }
    for (const Json& name : Member(flat, "required")) {
      names.Add(name.get<std::string>(), /*as_prefix=*/false);
    }
    for (const auto& [pattern, schema] : patterns.items()) {
      const std::string beginning = LiteralBeginning(pattern);
      if (beginning.empty() && !is_asked_for) return Choice(std::move(pairs));
      if (beginning.empty()) {
        return UnsupportedKeyword(
            path, "additionalProperties",
            " next to patternProperties that do not begin with a literal, such as ^x_");
      }
      names.Add(beginning, /*as_prefix=*/true);
    }
    ASSIGN_OR_RETURN(GrammarExpr value,
                     Value(others, absl::StrCat(path, ".additionalProperties"), is_shared));
    ASSIGN_OR_RETURN(GrammarExpr name, OtherName(flat, names, path, is_shared));
    pairs.push_back(Sequence({std::move(name), TextExpr(": "), std::move(value)}));
    return Choice(std::move(pairs));
  }

  // Returns the pairs whose names match this pattern and possibly others.
  absl::StatusOr<GrammarExpr> PatternPair(const Json& flat, const std::string& pattern,
                                          const std::string& path, bool is_shared) {
    const std::string place = absl::StrCat(path, ".patternProperties.", pattern);
    const Json& patterns = flat["patternProperties"];
    Json all = Json::array();
    for (const auto& [other, schema] : patterns.items()) {
      const std::string mine = LiteralBeginning(pattern);
      const std::string theirs = LiteralBeginning(other);
      const size_t common = std::min(mine.size(), theirs.size());
      const bool are_apart = mine.substr(0, common) != theirs.substr(0, common);
      if (other == pattern || !are_apart) all.push_back(schema);
    }
    // Names of `properties` must match their own schemas, too, and are written there.
    const std::string beginning = LiteralBeginning(pattern);
    const bool is_beginning = !beginning.empty() && pattern.size() == beginning.size() + 1;
    NameTrie taken;
    for (const auto& property : Member(flat, "properties").items()) {
      ASSIGN_OR_RETURN(const bool is_match, JsonSchema::Contains(property.key(), pattern));
      if (!is_match) continue;
      if (!is_beginning) return GrammarExpr();
      taken.Add(property.key().substr(beginning.size()), /*as_prefix=*/false);
    }
    if (HasKeyword(flat, "propertyNames")) {
      return UnsupportedKeyword(path, "propertyNames", " next to patternProperties");
    }
    absl::StatusOr<RegexNode> node = ParseRegex(pattern, RegexMode::kJsonSchema);
    if (!node.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schema", path, ".patternProperties: ", Quoted(pattern), " ", node.status().message()));
    }
    const Json whole = all.size() == 1 ? all[0] : Json{{"allOf", all}};
    ASSIGN_OR_RETURN(GrammarExpr value, Value(whole, place, is_shared));
    GrammarExpr name =
        taken.has_any() ? RegexExpr(absl::StrCat(RegexText(LiteralNode(beginning), TextForm::kJson),
                                                 NameExcept(taken, -1)))
                        : RegexGrammar(*node, TextForm::kJson);
    return Sequence(
        {TextExpr("\""), BeforeQuote(std::move(name)), TextExpr(": "), std::move(value)});
  }

  // Returns a name that is not among `names`.
  absl::StatusOr<GrammarExpr> OtherName(const Json& flat, const NameTrie& names,
                                        const std::string& path, bool is_shared) {
    const std::string place = absl::StrCat(path, ".propertyNames");
    const auto besides = [&names](int64_t max) {
      return absl::StrCat(NameExcept(names, max), "\"");
    };
    if (!HasKeyword(flat, "propertyNames")) {
      return Sequence({TextExpr("\""), RegexExpr(besides(-1))});
    }
    ASSIGN_OR_RETURN(const Flats flats, schema_.Alternatives(flat["propertyNames"], place));
    const bool has_lengths_alone =
        flats.size() == 1 &&
        absl::c_none_of(std::array{"pattern", "format", "enum", "const"},
                        [&](const char* k) { return HasKeyword(flats[0], k); });
    if (has_lengths_alone && names.has_any()) {
      if (!absl::c_linear_search(JsonSchema::TypesOf(flats[0]), "string")) return GrammarExpr();
      const int64_t max = CountOr(flats[0], "maxLength", -1);
      const LengthRanges ranges = JoinedRanges({{CountOr(flats[0], "minLength", 0), max}});
      if (ranges.empty()) return output_.None(place, "maxLength", "is below minLength");
      if (ranges == LengthRanges{{0, -1}})
        return Sequence({TextExpr("\""), RegexExpr(besides(-1))});
      if (is_shared && ranges[0].first > 0) {
        return UnsupportedKeyword(place, "minLength",
                                  " next to properties in one of several objects");
      }
      return Sequence({TextExpr("\""), strings_.Marked(RegexExpr(besides(max)), ranges)});
    }
    std::vector<GrammarExpr> all;
    for (Json name : flats) {
      if (!HasKeyword(name, "const") && !HasKeyword(name, "enum")) {
        if (names.has_any()) {
          return UnsupportedKeyword(path, "propertyNames",
                                    " with a pattern or a choice next to properties, if others "
                                    "are allowed");
        }
        name["type"] = "string";
      }
      ASSIGN_OR_RETURN(const GrammarExpr expr, PlainName(name, names, place, is_shared));
      all.push_back(expr);
    }
    return Choice(std::move(all));
  }

  absl::StatusOr<GrammarExpr> PlainName(const Json& flat, const NameTrie& names,
                                        const std::string& path, bool is_shared) {
    Json no_literals = Json::array();
    if (!HasKeyword(flat, "const") && !HasKeyword(flat, "enum")) {
      return strings_.Strings({flat}, path, is_shared, &no_literals);
    }
    std::vector<GrammarExpr> all;
    ASSIGN_OR_RETURN(const Json valid, ValidListedValues(flat, path));
    for (const Json& value : valid) {
      if (!value.is_string()) continue;
      const NameTrie* const taken = names.Find(value.get<std::string>());
      if (taken == nullptr || !taken->is_name) all.push_back(Literal(value));
    }
    return Choice(std::move(all));
  }

  struct Wanted {
    int rule = -1;
    Json schema;
    std::string path;
    bool is_shared = false;
  };

  const Json& root_;
  const SchemaGrammarOptions& options_;
  JsonSchema schema_;
  SchemaOutput output_;
  StringGrammar strings_{&output_};
  std::vector<LengthRanges>* lengths_;
  std::map<std::string, int> rules_;  // rules of values, by is_shared and schema
  std::list<Wanted> wanted_;          // rules that are not written yet
  int any_rule_ = -1;                 // the rule of AnyValue; -1 before it is made
  int64_t num_key_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::string> SchemaGrammar(const JsonValue& schema,
                                          const SchemaGrammarOptions& options,
                                          std::vector<LengthRanges>* lengths) {
  return Converter(schema, options, lengths).Convert();
}

}  // namespace tandem
