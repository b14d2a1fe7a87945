#ifndef TANDEM_BASE_NAMED_VALUES_H_
#define TANDEM_BASE_NAMED_VALUES_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/string_view.h"
#include "tandem/field_error.h"

namespace tandem {

// The values of an enumeration with the names that users write.
template <typename Value, size_t kCount>
using NamedValues = std::array<std::pair<Value, std::string_view>, kCount>;

// Returns the name of `value`. REQUIRES: `value` is in the table.
template <typename Value, size_t kCount>
std::string_view NameIn(const NamedValues<Value, kCount>& table, Value value) {
  for (const auto& [candidate, name] : table) {
    if (candidate == value) return name;
  }
  TANDEM_CHECK(false);
}

template <typename Value, size_t kCount>
std::vector<std::string> NamesIn(const NamedValues<Value, kCount>& table) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) names.emplace_back(name);
  return names;
}

// Returns the value called `name`. INVALID_ARGUMENT, with `field` and every name of the table, if
// the table, an array or a span of one, does not have it.
template <typename Table, typename Value = typename Table::value_type::first_type>
absl::StatusOr<Value> ValueOf(const Table& table, std::string_view field, std::string_view name) {
  std::string allowed;
  for (const auto& [value, candidate] : table) {
    if (candidate == name) return value;
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", View(candidate));
  }
  return FieldError(View(field), absl::StrCat("\"", View(name), "\" is not one of ", allowed));
}

// Returns the name that was probably meant by `typed`. If `typed` has at least three characters and
// is a prefix of a name, that is the name. Otherwise it is the name with the smallest number of
// edits (insertions, deletions, replacements and swaps of neighbours), at most one for every three
// characters of `typed`. The first of equally good names; empty if no name qualifies. ASCII only.
std::string NearestName(absl::string_view typed, absl::Span<const std::string> names);

}  // namespace tandem

#endif  // TANDEM_BASE_NAMED_VALUES_H_
