#include "tandem/json_types.h"

#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/json/json_text.h"
#include "text/chat/tool_tags.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kMaxReferences = 16;  // length of a chain of $ref

}  // namespace

const Json* Referenced(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int steps = 0; steps <= kMaxReferences; ++steps) {
    if (!at->is_object() || !at->contains("$ref")) return at;
    const Json& reference = at->at("$ref");
    if (!reference.is_string()) return nullptr;
    absl::string_view path = reference.get_ref<const std::string&>();
    if (path.empty() || path.front() != '#') return nullptr;
    at = &root;
    path.remove_prefix(1);
    if (path.empty()) continue;
    if (path.front() != '/') return nullptr;
    for (const absl::string_view name : absl::StrSplit(path.substr(1), '/')) {
      if (!at->is_object()) return nullptr;
      const auto member = at->find(absl::StrReplaceAll(name, {{"~1", "/"}, {"~0", "~"}}));
      if (member == at->end()) return nullptr;
      at = &*member;
    }
  }
  return nullptr;
}

namespace {

constexpr int kMaxSchemas = 256;  // schemas visited; references may form cycles

JsonTypes TypesNamed(const Json& name) {
  constexpr std::pair<const char*, JsonTypes::Type> kNames[] = {
      {"string", JsonTypes::kString},  {"number", JsonTypes::kNumber},
      {"integer", JsonTypes::kNumber}, {"boolean", JsonTypes::kBoolean},
      {"null", JsonTypes::kNull},      {"array", JsonTypes::kArray},
      {"object", JsonTypes::kObject}};
  for (const auto& [text, type] : kNames) {
    if (IsText(name, text)) return JsonTypes(type);
  }
  return JsonTypes();
}

// Returns the union of the types that the elements allow.
template <typename TypesOf>
uint8_t UnionOf(const Json& list, TypesOf types_of) {
  uint8_t types = 0;
  for (const Json& element : list) types |= types_of(element).bits();
  return types;
}

// `schemas` is the number of schemas that may still be visited.
JsonTypes AllowedWithin(const Json& schema, const Json& root, int* schemas) {
  if (!schema.is_object() || (*schemas)-- <= 0) return JsonTypes();
  if (schema.contains("$ref")) {
    const Json* const target = Referenced(schema, root);
    return target == nullptr ? JsonTypes() : AllowedWithin(*target, root, schemas);
  }
  uint8_t types = JsonTypes::kAll;
  if (const auto type = schema.find("type"); type != schema.end()) {
    types &= type->is_array() ? UnionOf(*type, TypesNamed) : TypesNamed(*type).bits();
  }
  if (const auto value = schema.find("const"); value != schema.end()) {
    types &= JsonTypes::Of(*value).bits();
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    types &= UnionOf(*values, JsonTypes::Of);
  }
  const auto allowed = [&](const Json& inner) { return AllowedWithin(inner, root, schemas); };
  for (const char* name : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(name);
    if (branches != schema.end() && branches->is_array()) types &= UnionOf(*branches, allowed);
  }
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array()) {
    for (const Json& inner : *all) types &= allowed(inner).bits();
  }
  return JsonTypes(types);
}

}  // namespace

JsonTypes JsonTypes::Of(const Json& value) {
  if (value.is_string()) return JsonTypes(kString);
  if (value.is_number()) return JsonTypes(kNumber);
  if (value.is_boolean()) return JsonTypes(kBoolean);
  if (value.is_array()) return JsonTypes(kArray);
  return JsonTypes(value.is_object() ? kObject : kNull);
}

JsonTypes JsonTypes::AllowedBy(const Json& schema, const Json& root) {
  int schemas = kMaxSchemas;
  return AllowedWithin(schema, root, &schemas);
}

}  // namespace tandem
