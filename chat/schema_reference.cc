#include "chat/schema_reference.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kMostReferences = 16;  // in a chain

}  // namespace

const Json* Referenced(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int steps = 0; steps <= kMostReferences; ++steps) {
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

}  // namespace tandem
