#include "tandem/parameter.h"

#include <cmath>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Formats a number; integers without an exponent.
std::string NumberText(double value) {
  constexpr double kMaxExactInteger = 9007199254740992.0;
  const bool is_integer = std::abs(value) <= kMaxExactInteger && value == std::floor(value);
  return is_integer ? absl::StrCat(static_cast<int64_t>(value)) : absl::StrCat(value);
}

}  // namespace

bool Limits::Contain(double value) const {
  return std::isfinite(value) && value <= high && (excludes_low ? value > low : value >= low);
}

std::string AllowedBy(const Limits& limits, bool as_text) {
  const bool has_word = *limits.word != '\0';
  const std::string word = has_word ? absl::StrCat(limits.word, " or ") : "";
  if (limits.is_size && as_text) {
    const std::string least =
        limits.low > 1 ? absl::StrCat(", at least ", NumberText(limits.low)) : "";
    return absl::StrCat(word, "a size such as 512M or 2G", least);
  }
  const double low = as_text || has_word ? limits.low : limits.unset.value_or(limits.low);
  if (std::isinf(low)) return absl::StrCat(word, "a number");
  if (std::isinf(limits.high)) {
    return absl::StrCat(word, limits.excludes_low ? "above " : "at least ", NumberText(low));
  }
  return limits.excludes_low
             ? absl::StrCat(word, "above ", NumberText(low), " and at most ",
                            NumberText(limits.high))
             : absl::StrCat(word, "from ", NumberText(low), " to ", NumberText(limits.high));
}

std::string AllowedInPlaceOf(double found, const Limits& limits, bool as_text) {
  const bool is_open = std::isinf(limits.low) || std::isinf(limits.high);
  return absl::StrCat(is_open && !std::isfinite(found) ? "finite and " : "",
                      AllowedBy(limits, as_text));
}

absl::Status CheckWithin(absl::string_view field, double value, const Limits& limits) {
  if (limits.Contain(value) || value == limits.unset) return absl::OkStatus();
  return FieldError(field, absl::StrCat("must be ", AllowedInPlaceOf(value, limits), ", got ",
                                        NumberText(value)));
}

absl::Status CheckOneOf(absl::string_view field, absl::string_view name, const OneOf& allowed) {
  if (absl::c_linear_search(allowed.names, name)) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("\"", name, "\" is not one of ", absl::StrJoin(allowed.names, ", ")));
}

std::string FieldOf(const Parameter& parameter) {
  const absl::string_view option = parameter.option;
  const size_t dashes = option.find("--");
  if (dashes == absl::string_view::npos) return parameter.name;
  return absl::StrReplaceAll(option.substr(dashes + 2), {{"-", "_"}});
}

}  // namespace tandem
