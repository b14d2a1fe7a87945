#include "text/constraint/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "text/constraint/regex_syntax.h"
#include "text/constraint/schema_keywords.h"
#include "text/constraint/string_grammar.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr size_t kMaxAlternatives = 256;
constexpr int64_t kMaxSteps = 100'000;  // schemas visited in total
constexpr int kMaxDepth = 64;

constexpr std::array kCombinations = {"$ref", "anyOf", "oneOf", "allOf"};

// Returns the keywords that restrict values, without annotations, references and combinations.
Json Assertions(const Json& schema) {
  Json base = Json::object();
  for (const auto& [name, value] : schema.items()) {
    const Keyword* const keyword = FindKeyword(name);
    if (keyword == nullptr || absl::c_linear_search(kCombinations, name)) continue;
    if (name == "$defs" || name == "definitions") continue;
    if (name == "uniqueItems" && value == false) continue;
    if (name == "format" && PatternOfFormat(value.get<std::string>()) == nullptr) continue;
    base[name] = value;
  }
  return base;
}

std::string PathOf(const std::string& path, absl::string_view keyword, absl::string_view key) {
  return absl::StrCat(path, ".", keyword, ".", key);
}

// Decodes %XX, and then ~1 and ~0, in a part of a JSON pointer.
std::string PointerPart(absl::string_view part) {
  std::string text;
  for (size_t i = 0; i < part.size(); ++i) {
    uint32_t byte = 0;
    if (part[i] == '%' && i + 2 < part.size() &&
        absl::SimpleHexAtoi(part.substr(i + 1, 2), &byte)) {
      text += static_cast<char>(byte);
      i += 2;
    } else {
      text += part[i];
    }
  }
  return absl::StrReplaceAll(absl::StrReplaceAll(text, {{"~1", "/"}}), {{"~0", "~"}});
}

// Return the bounds as doubles, which are used for comparisons only.
double MinOf(const Json& flat) {
  double least = -std::numeric_limits<double>::infinity();
  for (const char* name : {"minimum", "exclusiveMinimum"}) {
    if (HasKeyword(flat, name)) least = std::max(least, flat[name].get<double>());
  }
  return least;
}
double MaxOf(const Json& flat) {
  double most = std::numeric_limits<double>::infinity();
  for (const char* name : {"maximum", "exclusiveMaximum"}) {
    if (HasKeyword(flat, name)) most = std::min(most, flat[name].get<double>());
  }
  return most;
}

bool IsTypeOf(const Json& value, const std::string& type) {
  if (type != "integer") return value.type_name() == type;
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

bool IsWithinBounds(const Json& value, const Json& flat) {
  if (HasKeyword(flat, "minimum") && value < flat["minimum"]) return false;
  if (HasKeyword(flat, "maximum") && value > flat["maximum"]) return false;
  if (HasKeyword(flat, "exclusiveMinimum") && value <= flat["exclusiveMinimum"]) return false;
  if (HasKeyword(flat, "exclusiveMaximum") && value >= flat["exclusiveMaximum"]) return false;
  if (!HasKeyword(flat, "multipleOf")) return true;
  return std::fmod(value.get<double>(), flat["multipleOf"].get<double>()) == 0;
}

int64_t NumCharacters(const std::string& text) {
  return absl::c_count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

bool IsCountWithin(int64_t count, const Json& flat, const char* min, const char* max) {
  return count >= CountOr(flat, min, 0) && count <= CountOr(flat, max, INT64_MAX);
}

}  // namespace

absl::Status JsonSchema::Check() const { return CheckAt(root_, "", 0); }

absl::Status JsonSchema::CheckAt(const Json& schema, const std::string& path, int depth) const {
  if (!schema.is_object()) return absl::OkStatus();
  if (depth > kMaxDepth) return absl::InvalidArgumentError("schema: is nested too deeply");
  for (const auto& [name, value] : schema.items()) {
    const Keyword* const keyword = FindKeyword(name);
    if (keyword == nullptr) continue;
    RETURN_IF_ERROR(CheckKeyword(*keyword, value, path));
    if (keyword->value == KeywordValue::kSchema) {
      RETURN_IF_ERROR(CheckAt(value, absl::StrCat(path, ".", name), depth + 1));
    } else if (keyword->value == KeywordValue::kSchemas ||
               keyword->value == KeywordValue::kNamedSchemas) {
      for (const auto& element : value.items()) {
        RETURN_IF_ERROR(CheckAt(element.value(), PathOf(path, name, element.key()), depth + 1));
      }
    }
  }
  return absl::OkStatus();
}

const Json* JsonSchema::FindAnchor(const Json& value, const std::string& name) const {
  if (!value.is_structured()) return nullptr;
  if (value.is_object() && value.contains("$anchor") && IsText(value["$anchor"], name))
    return &value;
  for (const Json& inner : value) {
    if (const Json* const found = FindAnchor(inner, name); found != nullptr) return found;
  }
  return nullptr;
}

absl::StatusOr<const Json*> JsonSchema::Referenced(const Json& reference,
                                                   const std::string& path) const {
  const auto text = reference.get<std::string>();
  const auto wrong = [&](const char* allowed) {
    return WrongKeyword(path, "$ref", reference, allowed);
  };
  if (text.empty() || text[0] != '#') return wrong("a reference within the schema, e.g. #/$defs/a");
  const Json* at = &root_;
  if (text.size() > 1 && text[1] != '/') {
    at = FindAnchor(root_, text.substr(1));
  } else if (text.size() > 1) {
    for (const absl::string_view part : absl::StrSplit(absl::string_view(text).substr(2), '/')) {
      const std::string key = PointerPart(part);
      size_t index = 0;
      if (at->is_object() && at->contains(key)) {
        at = &(*at)[key];
      } else if (at->is_array() && absl::SimpleAtoi(key, &index) && index < at->size()) {
        at = &(*at)[index];
      } else {
        at = nullptr;
        break;
      }
    }
  }
  if (at == nullptr || !IsSchema(*at)) return wrong("a reference to a schema");
  return at;
}

absl::StatusOr<JsonSchema::Flats> JsonSchema::AllOf(const Flats& left, const Flats& right,
                                                    const std::string& path) {
  Flats both;
  for (const Json& a : left) {
    for (const Json& b : right) {
      ASSIGN_OR_RETURN(std::optional<Json> merged, MergedSchemas(a, b, path, &contradiction_));
      if (merged.has_value()) both.push_back(*std::move(merged));
      if (both.size() > kMaxAlternatives) {
        return absl::InvalidArgumentError(absl::StrCat("schema", path, ": combines to more than ",
                                                       kMaxAlternatives, " alternatives"));
      }
    }
  }
  return both;
}

absl::StatusOr<JsonSchema::Flats> JsonSchema::OneOf(const Json& branches, const Flats& base,
                                                    const std::string& path) {
  std::vector<Flats> all;
  for (const auto& branch : branches.items()) {
    const std::string place = PathOf(path, "oneOf", branch.key());
    ASSIGN_OR_RETURN(const Flats flats, Alternatives(branch.value(), place));
    ASSIGN_OR_RETURN(all.emplace_back(), AllOf(base, flats, place));
  }
  Flats result;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) {
      for (const Json& a : all[i]) {
        for (const Json& b : all[j]) {
          if (i == j) continue;
          ASSIGN_OR_RETURN(const bool is_excluded, Excludes(a, b, path, 0));
          if (is_excluded) continue;
          return UnsupportedKeyword(
              path, "oneOf",
              absl::StrCat(" where a value could match both ", std::min(i, j), " and ",
                           std::max(i, j), "; use anyOf, or distinguish them by a required const"));
        }
      }
    }
    absl::c_copy(all[i], std::back_inserter(result));
  }
  return result;
}

absl::StatusOr<JsonSchema::Flats> JsonSchema::Alternatives(const Json& schema,
                                                           const std::string& path) {
  if (++num_steps_ > kMaxSteps) {
    return absl::InvalidArgumentError("schema: is too large with its references expanded");
  }
  if (schema.is_boolean()) return schema == true ? Flats{Json::object()} : Flats();
  Flats flats = {Assertions(schema)};
  if (HasKeyword(schema, "$ref")) {
    ASSIGN_OR_RETURN(const Json* target, Referenced(schema["$ref"], path));
    if (!followed_.insert(target).second) {
      return absl::InvalidArgumentError(absl::StrCat("schema", path,
                                                     ".$ref: ", Shown(schema["$ref"]),
                                                     " leads back to itself without a value"));
    }
    absl::StatusOr<Flats> right = Alternatives(*target, path);
    followed_.erase(target);
    RETURN_IF_ERROR(right.status());
    ASSIGN_OR_RETURN(flats, AllOf(flats, *right, path));
  }
  if (HasKeyword(schema, "allOf")) {
    for (const auto& part : schema["allOf"].items()) {
      const std::string place = PathOf(path, "allOf", part.key());
      ASSIGN_OR_RETURN(const Flats right, Alternatives(part.value(), place));
      ASSIGN_OR_RETURN(flats, AllOf(flats, right, place));
    }
  }
  if (HasKeyword(schema, "anyOf")) {
    Flats right;
    for (const auto& branch : schema["anyOf"].items()) {
      ASSIGN_OR_RETURN(Flats some,
                       Alternatives(branch.value(), PathOf(path, "anyOf", branch.key())));
      absl::c_move(some, std::back_inserter(right));
    }
    ASSIGN_OR_RETURN(flats, AllOf(flats, right, absl::StrCat(path, ".anyOf")));
  }
  if (HasKeyword(schema, "oneOf")) {
    ASSIGN_OR_RETURN(flats, OneOf(schema["oneOf"], flats, path));
  }
  return flats;
}

std::vector<std::string> JsonSchema::TypesOf(const Json& flat) {
  if (HasKeyword(flat, "type")) return NamedTypes(flat["type"]);
  std::vector<std::string> all = {"null", "boolean", "number", "string", "array", "object"};
  if (HasKeyword(flat, "const") || HasKeyword(flat, "enum")) return all;
  std::vector<std::string> types;
  for (const std::string& type : all) {
    const bool is_meant = absl::c_any_of(
        Keywords(), [&](const Keyword& k) { return k.type == type && flat.contains(k.name); });
    if (is_meant) types.push_back(type);
  }
  return types.empty() ? all : types;
}

absl::StatusOr<bool> JsonSchema::Contains(const std::string& name, const std::string& pattern) {
  ASSIGN_OR_RETURN(const RegexNode node, ParseRegex(pattern, RegexMode::kSearch));
  return Matches(node, name);
}

absl::StatusOr<bool> JsonSchema::IsValid(const Json& value, const Json& schema,
                                         const std::string& path) {
  ASSIGN_OR_RETURN(const Flats flats, Alternatives(schema, path));
  for (const Json& flat : flats) {
    ASSIGN_OR_RETURN(const bool is_valid, IsFlatValid(value, flat, path));
    if (is_valid) return true;
  }
  return false;
}

absl::StatusOr<bool> JsonSchema::IsFlatValid(const Json& value, const Json& flat,
                                             const std::string& path) {
  if (HasKeyword(flat, "type")) {
    const auto types = NamedTypes(flat["type"]);
    if (absl::c_none_of(types, [&](const std::string& t) { return IsTypeOf(value, t); })) {
      return false;
    }
  }
  if (HasKeyword(flat, "const") && flat["const"] != value) return false;
  if (HasKeyword(flat, "enum") && !absl::c_linear_search(flat["enum"], value)) return false;
  if (value.is_number()) return IsWithinBounds(value, flat);
  if (value.is_object()) return IsValidObject(value, flat, path);
  if (value.is_array()) return IsValidArray(value, flat, path);
  if (!value.is_string()) return true;
  const auto text = value.get<std::string>();
  if (!IsCountWithin(NumCharacters(text), flat, "minLength", "maxLength")) return false;
  if (HasKeyword(flat, "pattern")) {
    ASSIGN_OR_RETURN(const bool is_match, Contains(text, flat["pattern"].get<std::string>()));
    if (!is_match) return false;
  }
  if (!HasKeyword(flat, "format")) return true;
  ASSIGN_OR_RETURN(
      const RegexNode format,
      ParseRegex(PatternOfFormat(flat["format"].get<std::string>()), RegexMode::kWhole));
  return Matches(format, text);
}

absl::StatusOr<bool> JsonSchema::IsValidObject(const Json& value, const Json& flat,
                                               const std::string& path) {
  if (!IsCountWithin(static_cast<int64_t>(value.size()), flat, "minProperties", "maxProperties")) {
    return false;
  }
  if (HasKeyword(flat, "required")) {
    for (const Json& name : flat["required"]) {
      if (!value.contains(name.get<std::string>())) return false;
    }
  }
  for (const auto& [name, inner] : value.items()) {
    bool is_named = false;
    Json all = true;
    if (HasKeyword(flat, "properties") && flat["properties"].contains(name)) {
      is_named = true;
      all = BothOf(all, flat["properties"][name]);
    }
    if (HasKeyword(flat, "patternProperties")) {
      for (const auto& [pattern, schema] : flat["patternProperties"].items()) {
        ASSIGN_OR_RETURN(const bool is_match, Contains(name, pattern));
        is_named |= is_match;
        if (is_match) all = BothOf(all, schema);
      }
    }
    if (!is_named && OthersOf(flat) != nullptr) all = *OthersOf(flat);
    ASSIGN_OR_RETURN(const bool is_valid, IsValid(inner, all, path));
    if (!is_valid) return false;
    if (!HasKeyword(flat, "propertyNames")) continue;
    ASSIGN_OR_RETURN(const bool is_name, IsValid(Json(name), flat["propertyNames"], path));
    if (!is_name) return false;
  }
  return true;
}

absl::StatusOr<bool> JsonSchema::IsValidArray(const Json& value, const Json& flat,
                                              const std::string& path) {
  if (!IsCountWithin(static_cast<int64_t>(value.size()), flat, "minItems", "maxItems")) {
    return false;
  }
  const size_t num_first = HasKeyword(flat, "prefixItems") ? flat["prefixItems"].size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const char* const others = HasKeyword(flat, "items") ? "items" : "unevaluatedItems";
    if (i >= num_first && !HasKeyword(flat, others)) break;
    ASSIGN_OR_RETURN(
        const bool is_valid,
        IsValid(value[i], i < num_first ? flat["prefixItems"][i] : flat[others], path));
    if (!is_valid) return false;
  }
  if (!HasKeyword(flat, "uniqueItems")) return true;
  for (size_t i = 0; i < value.size(); ++i) {
    if (std::find(value.begin() + i + 1, value.end(), value[i]) != value.end()) return false;
  }
  return true;
}

absl::StatusOr<bool> JsonSchema::ExcludesAsObject(const Json& a, const Json& b,
                                                  const std::string& path, int depth) {
  const auto requires_name = [](const Json& flat, const std::string& name) {
    return HasKeyword(flat, "required") && absl::c_linear_search(flat["required"], Json(name));
  };
  const auto named = [](const Json& flat, const std::string& name) -> const Json* {
    if (!HasKeyword(flat, "properties") || !flat["properties"].contains(name)) return nullptr;
    return &flat["properties"][name];
  };
  const auto is_closed = [](const Json& flat, bool otherwise) {
    if (HasKeyword(flat, "patternProperties")) return false;
    return OthersOf(flat) == nullptr ? otherwise : *OthersOf(flat) == false;
  };
  if (HasKeyword(b, "required")) {
    for (const Json& required : b["required"]) {
      const auto name = required.get<std::string>();
      if (named(a, name) == nullptr && !requires_name(a, name) && is_closed(a, is_strict_)) {
        return true;
      }
    }
  }
  if (!HasKeyword(a, "required")) return false;
  for (const Json& required : a["required"]) {
    const auto name = required.get<std::string>();
    const Json* const in_b = named(b, name);
    if (in_b == nullptr && is_closed(b, false)) return true;
    if (in_b == nullptr || named(a, name) == nullptr) continue;
    ASSIGN_OR_RETURN(const Flats mine, Alternatives(*named(a, name), path));
    ASSIGN_OR_RETURN(const Flats theirs, Alternatives(*in_b, path));
    bool are_apart = true;
    for (const Json& x : mine) {
      for (const Json& y : theirs) {
        ASSIGN_OR_RETURN(const bool is_excluded, Excludes(x, y, path, depth + 1));
        are_apart &= is_excluded;
      }
    }
    if (are_apart) return true;
  }
  return false;
}

absl::StatusOr<bool> JsonSchema::Excludes(const Json& a, const Json& b, const std::string& path,
                                          int depth) {
  if (depth > 8) return false;
  for (const auto& [finite, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const Json values = ListedValues(*finite);
    if (values.empty()) continue;
    bool is_common = false;
    for (const Json& value : values) {
      ASSIGN_OR_RETURN(const bool is_mine, IsFlatValid(value, *finite, path));
      ASSIGN_OR_RETURN(const bool is_others, IsFlatValid(value, *other, path));
      is_common |= is_mine && is_others;
    }
    if (!is_common) return true;
  }
  // Texts generated for `a` have the types TypesOf(a), while `b` accepts values of all the types
  // that it names.
  const std::vector<std::string> mine = TypesOf(a);
  const std::vector<std::string> theirs =
      HasKeyword(b, "type") ? NamedTypes(b["type"]) : TypesOf(Json::object());
  for (const std::string& type : mine) {
    const bool is_shared = TypeIncludes(theirs, type) ||
                           (type == "number" && absl::c_linear_search(theirs, "integer"));
    if (!is_shared) continue;
    if (type == "integer" || type == "number") {
      if (MinOf(a) > MaxOf(b) || MaxOf(a) < MinOf(b)) continue;
    } else if (type == "string") {
      if (CountOr(a, "minLength", 0) > CountOr(b, "maxLength", INT64_MAX)) continue;
      if (CountOr(b, "minLength", 0) > CountOr(a, "maxLength", INT64_MAX)) continue;
    } else if (type == "array") {
      if (CountOr(a, "minItems", 0) > CountOr(b, "maxItems", INT64_MAX)) continue;
      if (CountOr(b, "minItems", 0) > CountOr(a, "maxItems", INT64_MAX)) continue;
    } else if (type == "object") {
      ASSIGN_OR_RETURN(const bool is_excluded, ExcludesAsObject(a, b, path, depth));
      if (is_excluded) continue;
    }
    return false;
  }
  return true;
}

}  // namespace tandem
