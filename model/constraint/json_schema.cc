#include "model/constraint/json_schema.h"

#include <array>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "model/formats/json_text.h"
#include "model/formats/json_value.h"

namespace tandem {
namespace {

// They restrict what is valid, and the engine does not know them.
constexpr std::array<absl::string_view, 13> kUnknown = {"not",
                                                        "if",
                                                        "then",
                                                        "else",
                                                        "contains",
                                                        "minContains",
                                                        "maxContains",
                                                        "dependentRequired",
                                                        "dependencies",
                                                        "$dynamicRef",
                                                        "$recursiveRef",
                                                        "dependentSchemas",
                                                        "additionalItems"};
// Of these the engine reads the first that is there, and then nothing else of the schema.
constexpr std::array<absl::string_view, 4> kChoices = {"$ref", "anyOf", "oneOf", "allOf"};
// They restrict what is valid, and may not stand beside a choice.
constexpr std::array<absl::string_view, 24> kAssertions = {
    "const",         "enum",          "properties",        "required",
    "items",         "prefixItems",   "patternProperties", "additionalProperties",
    "propertyNames", "minProperties", "maxProperties",     "unevaluatedProperties",
    "minItems",      "maxItems",      "unevaluatedItems",  "uniqueItems",
    "minLength",     "maxLength",     "pattern",           "minimum",
    "maximum",       "multipleOf",    "exclusiveMinimum",  "exclusiveMaximum"};

absl::Status Unsupported(const std::string& path, absl::string_view keyword,
                         absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("schema", path, ": ", keyword, " is not supported", what));
}

// Whether a schema says what it is by itself.
bool SaysWhat(const JsonValue& schema) {
  if (!schema.is_object()) return false;
  return absl::c_any_of(std::array{"type", "$ref", "const", "enum", "anyOf"},
                        [&](const char* keyword) { return schema.contains(keyword); });
}

absl::Status CheckChoice(const JsonValue& schema, absl::string_view choice,
                         const std::string& path) {
  for (const absl::string_view keyword : kAssertions) {
    if (!schema.contains(std::string(keyword))) continue;
    return Unsupported(path, keyword, absl::StrCat(" beside ", choice));
  }
  for (const absl::string_view other : kChoices) {
    if (other != choice && schema.contains(std::string(other))) {
      return Unsupported(path, other, absl::StrCat(" beside ", choice));
    }
  }
  const JsonValue& branches = schema[std::string(choice)];
  const bool needs_type =
      choice != "$ref" && branches.is_array() && !absl::c_all_of(branches, SaysWhat);
  if (schema.contains("type") && (choice == "$ref" || needs_type)) {
    return Unsupported(path, "type", absl::StrCat(" beside ", choice, "; put it into each"));
  }
  return absl::OkStatus();
}

absl::Status CheckKeywords(const JsonValue& schema, const std::string& path) {
  for (const absl::string_view keyword : kUnknown) {
    if (schema.contains(std::string(keyword))) return Unsupported(path, keyword, "");
  }
  if (const auto unique = schema.find("uniqueItems"); unique != schema.end() && *unique != false) {
    return Unsupported(path, "uniqueItems", "");
  }
  for (const absl::string_view choice : kChoices) {
    if (schema.contains(std::string(choice))) return CheckChoice(schema, choice, path);
  }
  return absl::OkStatus();
}

absl::Status BoundByPattern(const std::string& path, JsonValue* schema) {
  if (!schema->contains("minLength") && !schema->contains("maxLength")) return absl::OkStatus();
  if (schema->contains("pattern") || schema->contains("format")) return absl::OkStatus();
  std::string bounds[] = {"0", ""};
  const char* const names[] = {"minLength", "maxLength"};
  for (int i = 0; i < 2; ++i) {
    const auto it = schema->find(names[i]);
    if (it == schema->end()) continue;
    if (!it->is_number_unsigned()) {
      return absl::InvalidArgumentError(absl::StrCat("schema", path, ".", names[i], ": found ",
                                                     it->dump(), ", allowed: a length"));
    }
    bounds[i] = it->dump();
    schema->erase(names[i]);
  }
  (*schema)["pattern"] = absl::StrCat("^.{", bounds[0], ",", bounds[1], "}$");
  return absl::OkStatus();
}

absl::Status Prepare(const std::string& path, JsonValue* schema) {
  if (!schema->is_object()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckKeywords(*schema, path));
  RETURN_IF_ERROR(BoundByPattern(path, schema));
  for (const char* one : {"items", "additionalProperties", "propertyNames", "unevaluatedItems",
                          "unevaluatedProperties"}) {
    if (!schema->contains(one)) continue;
    RETURN_IF_ERROR(Prepare(absl::StrCat(path, ".", one), &(*schema)[one]));
  }
  for (const char* many : {"properties", "patternProperties", "$defs", "definitions", "prefixItems",
                           "anyOf", "oneOf", "allOf"}) {
    if (!schema->contains(many)) continue;
    for (const auto& element : (*schema)[many].items()) {
      RETURN_IF_ERROR(Prepare(absl::StrCat(path, ".", many, ".", element.key()), &element.value()));
    }
  }
  return absl::OkStatus();
}

absl::Status PrepareTag(JsonValue* tag) {
  if (!tag->is_structured()) return absl::OkStatus();
  if (tag->is_object() && tag->contains("json_schema")) return Prepare("", &(*tag)["json_schema"]);
  for (JsonValue& inner : *tag) RETURN_IF_ERROR(PrepareTag(&inner));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PreparedTag(const std::string& text) {
  ASSIGN_OR_RETURN(JsonValue tag, ParseJsonValue(text, "structural_tag"));
  RETURN_IF_ERROR(PrepareTag(&tag));
  return tag.dump();
}

absl::StatusOr<std::string> PreparedSchema(const std::string& text) {
  ASSIGN_OR_RETURN(JsonValue schema, ParseJsonValue(text, "schema"));
  if (!schema.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: found ", schema.dump(), ", allowed: an object"));
  }
  RETURN_IF_ERROR(Prepare("", &schema));
  return schema.dump();
}

}  // namespace tandem
