// Options of a command. Each sets a variable, whose initial value is the default.
// Errors say what is allowed: "--batch: must be from 1 to 1024, got 0".
#ifndef TANDEM_TOOLS_OPTION_GROUP_H_
#define TANDEM_TOOLS_OPTION_GROUP_H_

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {

// Parses a size in bytes, such as 512 or 2G (K, M, G, T: powers of 1024).
std::optional<int64_t> SizeOf(absl::string_view text);
// Formats a number of bytes as a size: "16M".
std::string SizeText(int64_t bytes);

// Parses `text` into *value. INVALID_ARGUMENT names `field` and the allowed values.
template <typename Number>
absl::Status SetFromText(absl::string_view field, const std::string& text, const Limits& limits,
                         Number* value) {
  if (*limits.word != '\0' && text == limits.word) {
    *value = static_cast<Number>(*limits.unset);
    return absl::OkStatus();
  }
  Number number{};
  bool is_number = false;
  if constexpr (std::is_same_v<Number, float>) {
    is_number = absl::SimpleAtof(text, &number);
  } else if constexpr (std::is_floating_point_v<Number>) {
    is_number = absl::SimpleAtod(text, &number);
  } else if (limits.is_size) {
    const std::optional<int64_t> size = SizeOf(text);
    is_number = size.has_value();
    number = static_cast<Number>(size.value_or(0));
  } else {
    is_number = absl::SimpleAtoi(text, &number);
  }
  if (!is_number || !limits.Contain(static_cast<double>(number))) {
    Limits told = limits;
    double given = 0;
    const double most = static_cast<double>(std::numeric_limits<Number>::max());
    if (absl::SimpleAtod(text, &given) && given > most) told.high = std::min(told.high, most);
    const double found = is_number ? static_cast<double>(number) : 0.0;
    return FieldError(
        field, absl::StrCat("must be ", AllowedInPlaceOf(found, told, /*as_text=*/true), ", got ",
                            text.empty() ? "nothing" : text));
  }
  *value = number;
  return absl::OkStatus();
}

// Lets a command line have at most one of these options of `app`.
void AllowOneOf(CLI::App* app, std::initializer_list<const char*> names);

// The text that a check of CLI11 returns for `status`: CLI11 puts the option's name before it.
std::string WithoutName(const std::string& name, const absl::Status& status);

class OptionGroup {
 public:
  // Adds options to `app` under a heading of its help. `app` must not outlive the variables.
  explicit OptionGroup(CLI::App* app, std::string heading = "Options")
      : app_(app), heading_(std::move(heading)) {}

  // `names`: for example "-k,--draft-tokens". `value`: the name of the value in the help.
  // `help`: the default, *target, is appended in brackets unless the text ends with a bracket.
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  CLI::Option* Add(const std::string& names, const char* value, Number* target,
                   const std::string& help, const Limits& limits = {}) {
    const bool is_told = limits.unset != static_cast<double>(*target) || *limits.word != '\0';
    std::string otherwise;
    if (is_told) {
      otherwise = limits.unset == static_cast<double>(*target) ? std::string(limits.word)
                  : limits.is_size ? SizeText(static_cast<int64_t>(*target))
                                   : absl::StrCat(*target);
    }
    return AddParsed(names, value, help, otherwise,
                     [limits, target](const std::string& option, const std::string& text) {
                       return SetFromText(option, text, limits, target);
                     });
  }
  template <typename Number>
  CLI::Option* Add(const std::string& names, const char* value, std::optional<Number>* target,
                   const std::string& help, const Limits& limits = {}) {
    return AddParsed(names, value, help, "",
                     [limits, target](const std::string& option, const std::string& text) {
                       return SetFromText(option, text, limits, &target->emplace());
                     });
  }
  CLI::Option* Add(const std::string& names, const char* value, std::string* target,
                   std::string help);
  CLI::Option* Add(const std::string& names, const char* value, std::string* target,
                   std::string help, const OneOf& allowed);
  CLI::Option* Add(const std::string& names, const char* value, std::optional<std::string>* target,
                   std::string help);
  // `target`: an enumeration, whose names `parse` reads, perhaps optional.
  template <typename Target, typename Value>
  CLI::Option* Add(const std::string& names, const char* value, Target* target,
                   const std::string& help, absl::StatusOr<Value> (*parse)(std::string_view)) {
    std::string otherwise;
    if constexpr (std::is_same_v<Target, Value>) otherwise = NameOf(*target);
    return AddParsed(names, value, help, otherwise,
                     [parse, target](const std::string& option, const std::string& text) {
                       const absl::StatusOr<Value> parsed = parse(text);
                       if (parsed.ok()) *target = *parsed;
                       return WithField(parsed.status(), option);
                     });
  }
  // A list collects the values of repeated options, or with `separator` those of one word.
  template <typename Element>
  CLI::Option* Add(const std::string& names, const char* value, std::vector<Element>* target,
                   std::string help, char separator = '\0') {
    CLI::Option* const option = app_->add_option(names, *target, help);
    option->type_name(value)->group(heading_);
    if constexpr (std::is_arithmetic_v<Element>) {
      option->check([option](const std::string& text) {
        Element element{};
        const std::string name = option->get_name();
        return WithoutName(name, SetFromText(name, text, Limits{}, &element));
      });
    }
    return separator == '\0' ? option : option->delimiter(separator);
  }
  // Reverses *target.
  CLI::Option* AddFlag(const std::string& names, bool* target, const std::string& help);

 private:
  using Parse = std::function<absl::Status(const std::string& option, const std::string& text)>;
  CLI::Option* AddParsed(const std::string& names, const char* value, std::string help,
                         const std::string& otherwise, const Parse& parse);

  CLI::App* const app_;
  const std::string heading_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_OPTION_GROUP_H_
