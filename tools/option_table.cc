#include "tools/option_table.h"

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tools/command_line.h"
#include "tools/other_names.h"

namespace tandem {
namespace {

// Options that only a command line can give.
constexpr absl::string_view kOnlyTyped[] = {"--help", "--version", "--config"};

absl::Status MustBe(absl::string_view name, absl::string_view allowed, const JsonValue& value) {
  return FieldError(name, absl::StrCat("must be ", allowed, ", got ", Shown(value)));
}

// As WordsOfEntry, with errors that name the option as a command line does.
absl::StatusOr<OptionWords> Entry(const CLI::App* command, const std::string& key,
                                  const JsonValue& value) {
  const std::string typed = absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}));
  ASSIGN_OR_RETURN(const std::string name, InOwnNames(command, typed));
  const CLI::Option* const option = FindOption(command, name);
  if (option == nullptr || absl::c_linear_search(kOnlyTyped, name)) {
    return absl::InvalidArgumentError(NoSuchOption(command, typed));
  }
  OptionWords entry = {.option = option, .words = {}};
  if (option->get_items_expected_max() == 0) {
    if (!value.is_boolean()) return MustBe(name, "true or false", value);
    if (value.get<bool>()) entry.words = {name};
    return entry;
  }
  const bool is_list = option->get_expected_max() > 1;
  const absl::string_view allowed =
      is_list ? "a string, a number, or an array of these" : "a string or a number";
  const JsonValue list = is_list && value.is_array() ? value : JsonValue::array({value});
  for (const JsonValue& element : list) {
    if (!element.is_string() && !element.is_number()) return MustBe(name, allowed, value);
    entry.words.push_back(name);
    entry.words.push_back(element.is_string() ? element.get<std::string>() : element.dump());
  }
  return entry;
}

}  // namespace

absl::Status InSource(absl::string_view source, const absl::Status& status) {
  absl::string_view message = status.message();
  absl::ConsumePrefix(&message, "--");
  return absl::Status(status.code(), absl::StrCat(source, ": ", message));
}

absl::StatusOr<OptionWords> WordsOfEntry(const CLI::App* command, absl::string_view source,
                                         const std::string& key, const JsonValue& value) {
  absl::StatusOr<OptionWords> entry = Entry(command, key, value);
  if (!entry.ok()) return InSource(source, entry.status());
  return entry;
}

absl::StatusOr<std::vector<std::string>> WordsOfTable(const CLI::App* command,
                                                      absl::string_view source,
                                                      const JsonValue& table) {
  std::vector<std::string> words;
  std::vector<const CLI::Option*> options;
  for (const auto& [key, value] : table.items()) {
    ASSIGN_OR_RETURN(const OptionWords entry, WordsOfEntry(command, source, key, value));
    if (absl::c_linear_search(options, entry.option)) {
      return InSource(source, FieldError(entry.option->get_name(), "is given twice"));
    }
    options.push_back(entry.option);
    absl::c_copy(entry.words, std::back_inserter(words));
  }
  return words;
}

}  // namespace tandem
