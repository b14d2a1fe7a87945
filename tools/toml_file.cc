#include "tools/toml_file.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"

// Header-only, so that the program needs no further shared library.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace tandem {
namespace {

constexpr size_t kLargestFile = size_t{1} << 20;
constexpr int kDeepest = 64;

absl::Status ErrorAt(const std::string& path, const toml::source_region& where,
                     absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", where.begin.line, ": ", what));
}

absl::StatusOr<JsonValue> Converted(const toml::node& node, const std::string& path, int depth) {
  if (depth > kDeepest) {
    return ErrorAt(path, node.source(), absl::StrCat("nests deeper than ", kDeepest, " values"));
  }
  if (const toml::table* const table = node.as_table()) {
    std::vector<std::pair<std::string, const toml::node*>> members;
    for (const auto& [key, value] : *table) members.emplace_back(key.str(), &value);
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      const toml::source_position& first = a.second->source().begin;
      const toml::source_position& second = b.second->source().begin;
      return std::tie(first.line, first.column) < std::tie(second.line, second.column);
    });
    JsonValue object = JsonValue::object();
    for (const auto& [key, value] : members) {
      ASSIGN_OR_RETURN(object[key], Converted(*value, path, depth + 1));
    }
    return object;
  }
  if (const toml::array* const array = node.as_array()) {
    JsonValue list = JsonValue::array();
    for (const toml::node& element : *array) {
      ASSIGN_OR_RETURN(list.emplace_back(), Converted(element, path, depth + 1));
    }
    return list;
  }
  if (const auto* const text = node.as_string()) return JsonValue(text->get());
  if (const auto* const integer = node.as_integer()) return JsonValue(integer->get());
  if (const auto* const truth = node.as_boolean()) return JsonValue(truth->get());
  if (const auto* const number = node.as_floating_point()) {
    if (std::isfinite(number->get())) return JsonValue(number->get());
    return ErrorAt(path, node.source(), "a number must be finite");
  }
  return ErrorAt(path, node.source(), "dates and times are not allowed; write a string in quotes");
}

}  // namespace

absl::StatusOr<JsonValue> ReadTomlFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestFile));
  const toml::parse_result parsed = toml::parse(text);
  if (parsed.failed()) {
    return ErrorAt(path, parsed.error().source(), View(parsed.error().description()));
  }
  return Converted(parsed.table(), path, 1);
}

}  // namespace tandem
