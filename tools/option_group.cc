#include "tools/option_group.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

constexpr absl::string_view kUnits = "KMGT";

}  // namespace

std::optional<int64_t> SizeOf(absl::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    const size_t unit = kUnits.find(absl::ascii_toupper(text.back()));
    if (unit != absl::string_view::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      text.remove_suffix(1);
    }
  }
  int64_t count = 0;
  const int64_t most = std::numeric_limits<int64_t>::max() >> shift;
  if (!absl::SimpleAtoi(text, &count) || count < 0 || count > most) return std::nullopt;
  return count << shift;
}

std::string SizeText(int64_t bytes) {
  int unit = 0;
  for (; unit < 4 && bytes > 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, unit > 0 ? kUnits.substr(unit - 1, 1) : "");
}

std::string WithoutName(const std::string& name, const absl::Status& status) {
  return std::string(absl::StripPrefix(status.message(), absl::StrCat(name, ": ")));
}

void AllowOneOf(CLI::App* app, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    for (const char* const other : names) {
      if (other != name) app->get_option(name)->excludes(other);
    }
  }
}

CLI::Option* OptionGroup::AddParsed(const std::string& names, const char* value, std::string help,
                                    const std::string& otherwise, const Parse& parse) {
  if (!otherwise.empty() && !absl::EndsWith(help, "]"))
    absl::StrAppend(&help, " [", otherwise, "]");
  CLI::Option* const option = app_->add_option_function<std::string>(
      names, [](const std::string&) {}, help);
  option->type_name(value)->group(heading_);
  return option->check([parse, option](const std::string& text) {
    const std::string name = option->get_name();
    return WithoutName(name, parse(name, text));
  });
}

CLI::Option* OptionGroup::Add(const std::string& names, const char* value, std::string* target,
                              std::string help) {
  return AddParsed(names, value, std::move(help), *target,
                   [target](const std::string&, const std::string& text) {
                     *target = text;
                     return absl::OkStatus();
                   });
}

CLI::Option* OptionGroup::Add(const std::string& names, const char* value, std::string* target,
                              std::string help, const OneOf& allowed) {
  return AddParsed(names, value, std::move(help), *target,
                   [allowed, target](const std::string& option, const std::string& text) {
                     *target = text;
                     return CheckOneOf(option, text, allowed);
                   });
}

CLI::Option* OptionGroup::Add(const std::string& names, const char* value,
                              std::optional<std::string>* target, std::string help) {
  return AddParsed(names, value, std::move(help), "",
                   [target](const std::string&, const std::string& text) {
                     *target = text;
                     return absl::OkStatus();
                   });
}

CLI::Option* OptionGroup::AddFlag(const std::string& names, bool* target, const std::string& help) {
  const bool given = !*target;
  return app_
      ->add_flag_callback(
          names, [target, given] { *target = given; }, help)
      ->group(heading_);
}

}  // namespace tandem
