#include "tools/option_table.h"

#include <algorithm>
#include <utility>

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

bool Excludes(const CLI::Option* option, const CLI::Option* other) {
  return absl::c_linear_search(option->get_excludes(), other);
}

}  // namespace

std::vector<std::string> WordsIn(const std::vector<OptionWords>& entries) {
  std::vector<std::string> words;
  for (const OptionWords& entry : entries) absl::c_copy(entry.words, std::back_inserter(words));
  return words;
}

std::vector<OptionWords> NotOverridden(std::vector<OptionWords> lower,
                                       const std::vector<OptionWords>& higher) {
  const auto is_overridden = [&](const OptionWords& entry) {
    return absl::c_any_of(higher, [&](const OptionWords& other) {
      return entry.option != nullptr && other.option != nullptr &&
             (other.option == entry.option || Excludes(other.option, entry.option));
    });
  };
  lower.erase(std::remove_if(lower.begin(), lower.end(), is_overridden), lower.end());
  return lower;
}

absl::Status InSource(absl::string_view source, const absl::Status& status) {
  absl::string_view message = status.message();
  absl::ConsumePrefix(&message, "--");
  return absl::Status(status.code(), absl::StrCat(source, ": ", message));
}

absl::Status InSource(const std::vector<OptionWords>& entries, const absl::Status& status) {
  const absl::string_view message = status.message();
  const absl::string_view name = message.substr(0, message.find_first_of(": ="));
  for (const OptionWords& entry : entries) {
    if (entry.source.empty() || entry.option->get_name() != name) continue;
    return absl::Status(status.code(), absl::StrCat(entry.source, message.substr(name.size())));
  }
  return status;
}

absl::StatusOr<const CLI::Option*> OptionOfKey(const CLI::App* command, const std::string& key) {
  const std::string typed = absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}));
  ASSIGN_OR_RETURN(const std::string name, InOwnNames(command, typed));
  const CLI::Option* const option = FindOption(command, name);
  if (option != nullptr && !absl::c_linear_search(kOnlyTyped, name)) return option;
  return absl::InvalidArgumentError(NoSuchOption(command, typed));
}

absl::StatusOr<OptionWords> WordsOfEntry(const CLI::App* command, const std::string& key,
                                         const JsonValue& value) {
  ASSIGN_OR_RETURN(const CLI::Option* const option, OptionOfKey(command, key));
  const std::string name = option->get_name();
  OptionWords entry = {.option = option};
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

absl::StatusOr<std::vector<OptionWords>> WordsOfTable(const CLI::App* command,
                                                      absl::string_view source,
                                                      const JsonValue& table) {
  std::vector<OptionWords> entries;
  for (const auto& [key, value] : table.items()) {
    absl::StatusOr<OptionWords> entry = WordsOfEntry(command, key, value);
    if (!entry.ok()) return InSource(source, entry.status());
    const std::string name = entry->option->get_name();
    for (const OptionWords& other : entries) {
      if (other.option == entry->option)
        return InSource(source, FieldError(name, "is given twice"));
    }
    entry->source = absl::StrCat(source, ": ", absl::StripPrefix(name, "--"));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace tandem
