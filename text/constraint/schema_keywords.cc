#include "text/constraint/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr std::array kKeywords = {
    Keyword{"type", KeywordValue::kAny},
    Keyword{"enum", KeywordValue::kAny},
    Keyword{"const", KeywordValue::kAny},
    Keyword{"properties", KeywordValue::kNamedSchemas, "object"},
    Keyword{"required", KeywordValue::kTexts, "object"},
    Keyword{"additionalProperties", KeywordValue::kSchema, "object"},
    Keyword{"unevaluatedProperties", KeywordValue::kSchema, "object"},
    Keyword{"patternProperties", KeywordValue::kNamedSchemas, "object"},
    Keyword{"propertyNames", KeywordValue::kSchema, "object"},
    Keyword{"minProperties", KeywordValue::kCount, "object"},
    Keyword{"maxProperties", KeywordValue::kCount, "object"},
    Keyword{"items", KeywordValue::kSchema, "array"},
    Keyword{"prefixItems", KeywordValue::kSchemas, "array"},
    Keyword{"unevaluatedItems", KeywordValue::kSchema, "array"},
    Keyword{"minItems", KeywordValue::kCount, "array"},
    Keyword{"maxItems", KeywordValue::kCount, "array"},
    Keyword{"uniqueItems", KeywordValue::kAny, "array"},
    Keyword{"minLength", KeywordValue::kCount, "string"},
    Keyword{"maxLength", KeywordValue::kCount, "string"},
    Keyword{"pattern", KeywordValue::kText, "string"},
    Keyword{"format", KeywordValue::kText, "string"},
    Keyword{"minimum", KeywordValue::kNumber, "number"},
    Keyword{"maximum", KeywordValue::kNumber, "number"},
    Keyword{"exclusiveMinimum", KeywordValue::kNumber, "number"},
    Keyword{"exclusiveMaximum", KeywordValue::kNumber, "number"},
    Keyword{"multipleOf", KeywordValue::kNumber, "number"},
    Keyword{"$ref", KeywordValue::kText},
    Keyword{"anyOf", KeywordValue::kSchemas},
    Keyword{"oneOf", KeywordValue::kSchemas},
    Keyword{"allOf", KeywordValue::kSchemas},
    Keyword{"$defs", KeywordValue::kNamedSchemas},
    Keyword{"definitions", KeywordValue::kNamedSchemas},
    Keyword{"not", KeywordValue::kRefused},
    Keyword{"if", KeywordValue::kRefused},
    Keyword{"then", KeywordValue::kRefused},
    Keyword{"else", KeywordValue::kRefused},
    Keyword{"contains", KeywordValue::kRefused},
    Keyword{"minContains", KeywordValue::kRefused},
    Keyword{"maxContains", KeywordValue::kRefused},
    Keyword{"dependentRequired", KeywordValue::kRefused},
    Keyword{"dependentSchemas", KeywordValue::kRefused},
    Keyword{"dependencies", KeywordValue::kRefused},
    Keyword{"additionalItems", KeywordValue::kRefused},
    Keyword{"$dynamicRef", KeywordValue::kRefused},
    Keyword{"$recursiveRef", KeywordValue::kRefused},
};
bool IsCount(const Json& value) {
  return value.is_number() && value >= 0 && value <= 1e15 &&
         value.get<double>() == std::floor(value.get<double>());
}

absl::Status CheckType(const Json& type, const std::string& path) {
  const std::vector<Json> names =
      type.is_array() ? type.get<std::vector<Json>>() : std::vector<Json>{type};
  for (const Json& name : names) {
    if (!name.is_string() || !absl::c_linear_search(kJsonTypes, name.get<std::string>())) {
      return WrongKeyword(path, "type", name, absl::StrJoin(kJsonTypes, ", "));
    }
  }
  return names.empty() ? WrongKeyword(path, "type", type, "at least one type") : absl::OkStatus();
}

// Properties of `from` that `to` does not name must also match the schema for other properties of
// `to`.
void RestrictOthers(const Json& to, Json* from) {
  const Json* const others = OthersOf(to);
  if (others == nullptr || !HasKeyword(*from, "properties")) return;
  const auto named = to.find("properties");
  for (auto& [name, schema] : (*from)["properties"].items()) {
    if (named != to.end() && named->contains(name)) continue;
    schema = BothOf(schema, *others);
  }
}

bool MergeTypes(const Json& value, Json* mine) {
  const std::vector<std::string> a = NamedTypes(*mine);
  const std::vector<std::string> b = NamedTypes(value);
  Json common = Json::array();
  for (const char* type : kJsonTypes) {
    if (TypeIncludes(a, type) && TypeIncludes(b, type)) common.push_back(type);
  }
  if (absl::c_linear_search(common, Json("number"))) {
    common.erase(std::remove(common.begin(), common.end(), Json("integer")), common.end());
  }
  *mine = std::move(common);
  return !mine->empty();
}

// Merges the values of one keyword. Returns false if no value is valid for both.
absl::StatusOr<bool> MergeValue(const std::string& name, const Json& value, const std::string& path,
                                Json* mine) {
  const Keyword& keyword = *FindKeyword(name);
  if (name == "type") return MergeTypes(value, mine);
  if (name == "enum") {
    Json common = Json::array();
    for (const Json& v : *mine) {
      if (absl::c_linear_search(value, v)) common.push_back(v);
    }
    *mine = std::move(common);
    return !mine->empty();
  }
  if (name == "const") return false;  // the two values differ
  if (name == "uniqueItems") {
    *mine = true;
    return true;
  }
  if (name == "required") {
    for (const Json& v : value) {
      if (!absl::c_linear_search(*mine, v)) mine->push_back(v);
    }
    return true;
  }
  if (name == "multipleOf") {
    if (mine->is_number_integer() && value.is_number_integer() && *mine <= 1'000'000 &&
        value <= 1'000'000) {
      *mine = std::lcm(mine->get<int64_t>(), value.get<int64_t>());
      return true;
    }
    return UnsupportedKeyword(path, name, " twice in a combination");
  }
  if (keyword.value == KeywordValue::kNamedSchemas) {
    for (const auto& [key, schema] : value.items()) {
      Json& other = (*mine)[key];
      other = other.is_null() ? schema : BothOf(other, schema);
    }
    return true;
  }
  if (keyword.value == KeywordValue::kSchema) {
    *mine = BothOf(*mine, value);
    return true;
  }
  if (keyword.value == KeywordValue::kCount || keyword.value == KeywordValue::kNumber) {
    const bool is_lower = absl::StrContains(name, "min") || absl::StrContains(name, "Min");
    if (is_lower ? *mine < value : value < *mine) *mine = value;
    return true;
  }
  return UnsupportedKeyword(path, name, " twice in a combination");
}

// INVALID_ARGUMENT if the schemas of objects and arrays cannot be merged.
absl::Status CheckObjects(const Json& a, const Json& b, const std::string& path) {
  for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (HasKeyword(*x, "patternProperties") && OthersOf(*y) != nullptr &&
        OthersOf(*y)->is_boolean() && *OthersOf(*y) == true) {
      continue;
    }
    if (HasKeyword(*x, "patternProperties") && OthersOf(*y) != nullptr && *x != *y) {
      return UnsupportedKeyword(path, "patternProperties",
                                " in one part of a combination and additionalProperties in "
                                "another");
    }
    if (HasKeyword(*x, "prefixItems") && HasKeyword(*y, "items") &&
        !HasKeyword(*y, "prefixItems")) {
      return UnsupportedKeyword(path, "prefixItems",
                                " in one part of a combination and items in another");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool TypeIncludes(const std::vector<std::string>& types, const std::string& type) {
  return absl::c_linear_search(types, type) ||
         (type == "integer" && absl::c_linear_search(types, "number"));
}

std::vector<std::string> NamedTypes(const Json& type) {
  return type.is_string() ? std::vector<std::string>{type.get<std::string>()}
                          : type.get<std::vector<std::string>>();
}

Json BothOf(const Json& a, const Json& b) {
  if (a == b || b == true || b == Json::object()) return a;
  if (a == true || a == Json::object()) return b;
  if (a == false || b == false) return false;
  return {{"allOf", Json::array({a, b})}};
}

const Json* OthersOf(const Json& flat) {
  for (const char* name : {"additionalProperties", "unevaluatedProperties"}) {
    if (const auto it = flat.find(name); it != flat.end()) return &*it;
  }
  return nullptr;
}

absl::Span<const Keyword> Keywords() { return kKeywords; }

const Keyword* FindKeyword(absl::string_view name) {
  const auto it = absl::c_find_if(kKeywords, [&](const Keyword& k) { return k.name == name; });
  return it == kKeywords.end() ? nullptr : &*it;
}

bool IsSchema(const Json& value) { return value.is_object() || value.is_boolean(); }

absl::Status UnsupportedKeyword(const std::string& path, absl::string_view keyword,
                                absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("schema", path, ".", keyword, ": is not supported", why));
}

bool HasKeyword(const Json& schema, const char* keyword) { return schema.contains(keyword); }

int64_t CountOr(const Json& schema, const char* keyword, int64_t otherwise) {
  const auto it = schema.find(keyword);
  return it == schema.end() ? otherwise : static_cast<int64_t>(it->get<double>());
}

Json ListedValues(const Json& schema) {
  if (HasKeyword(schema, "const")) return Json::array({schema["const"]});
  return HasKeyword(schema, "enum") ? schema["enum"] : Json::array();
}

absl::Status WrongKeyword(const std::string& path, absl::string_view keyword, const Json& found,
                          absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("schema", path, ".", keyword, ": found ", Shown(found), ", allowed: ", allowed));
}

absl::Status CheckKeyword(const Keyword& keyword, const Json& value, const std::string& path) {
  const auto wrong = [&](const char* allowed) {
    return WrongKeyword(path, keyword.name, value, allowed);
  };
  const absl::string_view name = keyword.name;
  switch (keyword.value) {
    case KeywordValue::kCount:
      return IsCount(value) ? absl::OkStatus() : wrong("an integer from 0 to 1e15");
    case KeywordValue::kNumber:
      if (!value.is_number()) return wrong("a number");
      if (name == "multipleOf" && value <= 0) return wrong("a number above 0");
      return absl::OkStatus();
    case KeywordValue::kText:
      if (name == "format" && (value == "regex" || value == "uri-template")) {
        return UnsupportedKeyword(path, name, absl::StrCat(" of ", value.get<std::string>()));
      }
      return value.is_string() ? absl::OkStatus() : wrong("a string");
    case KeywordValue::kTexts:
      if (!value.is_array()) return wrong("a list of strings");
      return absl::c_all_of(value, [](const Json& v) { return v.is_string(); })
                 ? absl::OkStatus()
                 : wrong("a list of strings");
    case KeywordValue::kSchema:
      return IsSchema(value) ? absl::OkStatus() : wrong("a schema");
    case KeywordValue::kSchemas:
      return value.is_array() && !value.empty() && absl::c_all_of(value, IsSchema)
                 ? absl::OkStatus()
                 : wrong("a list of one schema or more");
    case KeywordValue::kNamedSchemas:
      return value.is_object() && absl::c_all_of(value, IsSchema) ? absl::OkStatus()
                                                                  : wrong("an object of schemas");
    case KeywordValue::kRefused:
      return UnsupportedKeyword(path, keyword.name);
    case KeywordValue::kAny:
      break;
  }
  if (name == "type") return CheckType(value, path);
  if (name == "enum" && (!value.is_array() || value.empty())) return wrong("a list of values");
  if (name == "uniqueItems" && !value.is_boolean()) return wrong("true or false");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Json>> MergedSchemas(Json a, Json b, const std::string& path,
                                                  std::string* contradiction) {
  RETURN_IF_ERROR(CheckObjects(a, b, path));
  RestrictOthers(a, &b);
  RestrictOthers(b, &a);
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name)) {
      a[name] = value;
      continue;
    }
    Json& mine = a[name];
    if (mine == value) continue;
    ASSIGN_OR_RETURN(const bool is_possible, MergeValue(name, value, path, &mine));
    if (is_possible) continue;
    if (contradiction->empty()) {
      *contradiction = absl::StrCat("schema", path, ": parts differ in ", name);
    }
    return std::optional<Json>();
  }
  return std::optional<Json>(std::move(a));
}

}  // namespace tandem
