#include "constraint/schema_keywords.h"

#include <cmath>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "json/json_text.h"

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
  return names.empty() ? WrongKeyword(path, "type", type, "one type or more") : absl::OkStatus();
}

}  // namespace

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

}  // namespace tandem
