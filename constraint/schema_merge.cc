#include "constraint/schema_merge.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "constraint/schema_keywords.h"

namespace tandem {

using Json = JsonValue;

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

namespace {

// Properties of `from` that `to` does not name are among `to`'s others.
void RestrictOthers(const Json& to, Json* from) {
  const Json* const others = OthersOf(to);
  if (others == nullptr || !HasKeyword(*from, "properties")) return;
  const auto named = to.find("properties");
  for (auto& [name, schema] : (*from)["properties"].items()) {
    if (named != to.end() && named->contains(name)) continue;
    schema = BothOf(schema, *others);
  }
}

// The flat schema of what both allow; nullopt if they contradict each other.
class Merger {
 public:
  explicit Merger(const std::string& path) : path_(path) {}

  absl::StatusOr<std::optional<Json>> Merge(Json a, Json b) {
    RETURN_IF_ERROR(CheckObjects(a, b));
    RestrictOthers(a, &b);
    RestrictOthers(b, &a);
    for (const auto& [name, value] : b.items()) {
      if (!a.contains(name)) {
        a[name] = value;
        continue;
      }
      Json& mine = a[name];
      if (mine == value) continue;
      ASSIGN_OR_RETURN(const bool is_possible, MergeValue(name, value, &mine));
      if (!is_possible) contradiction_ = absl::StrCat("schema", path_, ": parts differ in ", name);
      if (!is_possible) return std::optional<Json>();
    }
    return std::optional<Json>(std::move(a));
  }
  const std::string& contradiction() const { return contradiction_; }

 private:
  absl::Status CheckObjects(const Json& a, const Json& b) const {
    for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (HasKeyword(*x, "patternProperties") && OthersOf(*y) != nullptr &&
          OthersOf(*y)->is_boolean() && *OthersOf(*y) == true) {
        continue;
      }
      if (HasKeyword(*x, "patternProperties") && OthersOf(*y) != nullptr && *x != *y) {
        return UnsupportedKeyword(path_, "patternProperties",
                                  " in one part of a combination and additionalProperties in "
                                  "another");
      }
      if (HasKeyword(*x, "prefixItems") && HasKeyword(*y, "items") &&
          !HasKeyword(*y, "prefixItems")) {
        return UnsupportedKeyword(path_, "prefixItems",
                                  " in one part of a combination and items in another");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> MergeValue(const std::string& name, const Json& value, Json* mine) const {
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
    if (name == "const") return false;  // they differ
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
      return UnsupportedKeyword(path_, name, " twice in a combination");
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
    return UnsupportedKeyword(path_, name, " twice in a combination");
  }

  static bool MergeTypes(const Json& value, Json* mine) {
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

  const std::string& path_;
  std::string contradiction_;
};

}  // namespace

absl::StatusOr<std::optional<Json>> MergedSchemas(Json a, Json b, const std::string& path,
                                                  std::string* contradiction) {
  Merger merger(path);
  ASSIGN_OR_RETURN(std::optional<Json> merged, merger.Merge(std::move(a), std::move(b)));
  if (!merged.has_value() && contradiction->empty()) *contradiction = merger.contradiction();
  return merged;
}

}  // namespace tandem
