#include "tools/settings.h"

#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "tools/command_line.h"
#include "tools/toml_file.h"

namespace tandem {
namespace {

constexpr absl::string_view kPrefix = "TANDEM_OPT_";

// Variables with names of their own, which the commands read, and the options that they stand for.
constexpr std::pair<absl::string_view, const char*> kOwnVariables[] = {
    {"TANDEM_API_KEY", "--api-key-file"},
    {"TANDEM_KV_TRANSFER_SECRET", "--kv-transfer-secret-file"},
    {"TANDEM_RENDEZVOUS_SECRET", "--rendezvous-secret-file"},
};

// OK if `app` or one of its commands has the option.
absl::Status CheckKey(const CLI::App* app, const std::string& key) {
  const absl::Status status = OptionOfKey(app, key).status();
  const auto commands = app->get_subcommands(nullptr);
  const auto has_it = [&](const CLI::App* each) { return CheckKey(each, key).ok(); };
  if (status.ok() || absl::c_any_of(commands, has_it)) return absl::OkStatus();
  return commands.empty() ? status
                          : absl::InvalidArgumentError(NoSuchOptionOfCommands(app, "--" + key));
}

bool IsWithin(const CLI::App* command, const CLI::App* app) {
  while (command != nullptr && command != app) command = command->get_parent();
  return command == app;
}

void Override(std::vector<OptionWords>* lower, const std::vector<OptionWords>& higher) {
  *lower = NotOverridden(std::move(*lower), higher);
  absl::c_copy(higher, std::back_inserter(*lower));
}

// Adds what `table`, of the command `app`, says of `command`, and checks the rest.
absl::Status AddTable(const CLI::App* app, const std::string& source, const JsonValue& table,
                      const CLI::App* command, std::vector<OptionWords>* entries) {
  JsonValue own = JsonValue::object();
  for (const auto& [key, value] : table.items()) {
    if (value.is_object()) continue;
    const absl::Status known = CheckKey(app, key);
    if (!known.ok()) return InSource(source, known);
    if (IsWithin(command, app) && OptionOfKey(command, key).ok()) own[key] = value;
  }
  ASSIGN_OR_RETURN(const std::vector<OptionWords> found, WordsOfTable(command, source, own));
  Override(entries, found);
  for (const auto& [key, value] : table.items()) {
    if (!value.is_object()) continue;
    const CLI::App* const named = FindCommand(app, key);
    if (named == nullptr) {
      return InSource(source, absl::InvalidArgumentError(NoSuchCommand(app, key)));
    }
    RETURN_IF_ERROR(AddTable(named, absl::StrCat(source, ": ", key), value, command, entries));
  }
  return absl::OkStatus();
}

// The options of the environment. Sets *config if it names a file.
absl::StatusOr<std::vector<OptionWords>> EnvironmentOptions(const CLI::App* program,
                                                            const CLI::App* command,
                                                            const char* const* environment,
                                                            std::string* config) {
  std::vector<OptionWords> entries;
  for (; *environment != nullptr; ++environment) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*environment, absl::MaxSplits('=', 1));
    const auto& [name, value] = variable;
    for (const auto& [own, option] : kOwnVariables) {
      if (name != own || value.empty()) continue;
      entries.push_back({.option = FindOption(command, option)});
    }
    if (!absl::StartsWith(name, kPrefix)) continue;
    const std::string key = absl::AsciiStrToLower(absl::StripPrefix(name, kPrefix));
    if (key == "config") {
      *config = value;
      continue;
    }
    const auto named = [&name = name](const absl::Status& status) {
      const absl::string_view message = status.message();
      const size_t colon = std::min(message.find(':'), message.size());
      return absl::InvalidArgumentError(absl::StrCat(name, message.substr(colon)));
    };
    const absl::Status known = CheckKey(program, key);
    if (!known.ok()) return named(known);
    const absl::StatusOr<const CLI::Option*> option = OptionOfKey(command, key);
    if (value.empty() || !option.ok()) continue;
    const bool is_flag = (*option)->get_items_expected_max() == 0;
    const bool is_truth = is_flag && (value == "true" || value == "false");
    absl::StatusOr<OptionWords> entry =
        WordsOfEntry(command, key, is_truth ? JsonValue(value == "true") : JsonValue(value));
    if (!entry.ok()) return named(entry.status());
    entry->source = name;
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<OptionWords>> WithSettings(const CLI::App* program, TypedWords typed,
                                                      const char* const* environment) {
  const CLI::App* const command = typed.command;
  std::string config;
  std::string typed_config;
  for (const OptionWords& entry : typed.entries) {
    const std::string name = entry.option == nullptr ? "" : entry.option->get_name();
    if (name == "--help" || name == "--version") return std::move(typed.entries);
    if (name != "--config") continue;
    const std::string& word = entry.words.back();
    typed_config = std::string(absl::StripPrefix(word, "--config="));
  }
  if (command == program) return std::move(typed.entries);
  ASSIGN_OR_RETURN(const std::vector<OptionWords> variables,
                   EnvironmentOptions(program, command, environment, &config));
  if (!typed_config.empty()) config = typed_config;
  std::vector<OptionWords> lower;
  if (!config.empty() && FindOption(command, "--config") != nullptr) {
    ASSIGN_OR_RETURN(const JsonValue table, ReadTomlFile(config));
    RETURN_IF_ERROR(AddTable(program, config, table, command, &lower));
  }
  Override(&lower, variables);
  lower = NotOverridden(std::move(lower), typed.entries);
  typed.entries.insert(typed.entries.begin() + static_cast<int64_t>(typed.num_before),
                       lower.begin(), lower.end());
  return std::move(typed.entries);
}

}  // namespace tandem
