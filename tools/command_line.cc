#include "tools/command_line.h"

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/named_values.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/other_names.h"

namespace tandem {
namespace {

constexpr char kExitStatus[] = "tandem.dev/exit_status";  // a payload

// ", did you mean --prompt?", or nothing.
std::string Meant(absl::string_view typed, absl::Span<const std::string> names) {
  const std::string nearest = NearestName(typed, names);
  return nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?");
}

std::string SeeHelp(const CLI::App* app) {
  return absl::StrCat("see `", FullName(app), " --help`");
}

// Names for suggestions. One-letter names are left out: they are too short to guess from.
std::vector<std::string> LongOptions(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  }
  return names;
}

}  // namespace

const CLI::App* NamedCommand(const CLI::App* program) {
  while (!program->get_subcommands().empty()) program = program->get_subcommands().back();
  return program;
}

const CLI::App* FindCommand(const CLI::App* app, absl::string_view name) {
  for (const CLI::App* command : app->get_subcommands(nullptr)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

const CLI::Option* FindOption(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent()) {
    if (const CLI::Option* const option = command->get_option_no_throw(name)) return option;
  }
  return nullptr;
}

std::string FullName(const CLI::App* app) {
  const CLI::App* const parent = app->get_parent();
  return parent == nullptr ? app->get_name() : absl::StrCat(FullName(parent), " ", app->get_name());
}

std::string HelpOf(const CLI::App* app) {
  const CLI::App* const parent = app->get_parent();
  // App::help() of a parent would show the help of the parsed command, so call the formatter.
  return app->get_formatter()->make_help(app, parent == nullptr ? app->get_name() : FullName(app),
                                         CLI::AppFormatMode::Normal);
}

std::string NoSuchCommand(const CLI::App* app, absl::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app->get_subcommands(nullptr))
    names.push_back(command->get_name());
  const absl::string_view advice = app->get_parent() == nullptr ? AdviceOnCommand(word) : "";
  return absl::StrCat(word, ": no such command of `", FullName(app), "`",
                      advice.empty() ? Meant(word, names) : absl::StrCat(": ", advice));
}

std::string NoSuchOption(const CLI::App* app, const std::string& name, absl::string_view advice) {
  return absl::StrCat(name, ": no such option of `", FullName(app), "`",
                      advice.empty() ? Meant(name, LongOptions(app)) : absl::StrCat(": ", advice),
                      "; ", SeeHelp(app));
}

std::string NoSuchOptionOfCommands(const CLI::App* app, const std::string& name) {
  std::vector<std::string> names;
  const std::function<void(const CLI::App*)> add = [&](const CLI::App* each) {
    absl::c_copy(LongOptions(each), std::back_inserter(names));
    absl::c_for_each(each->get_subcommands(nullptr), add);
  };
  add(app);
  return absl::StrCat(name, ": no such option of the commands of `", FullName(app), "`",
                      Meant(name, names));
}

std::string Explained(const CLI::App* program, const std::vector<std::string>& words,
                      const CLI::ParseError& error) {
  const CLI::App* const app = NamedCommand(program);
  const std::vector<std::string> left = program->remaining(/*recurse=*/true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || left.empty()) {
    return absl::StrCat(error.what(), "; ", SeeHelp(app));
  }
  const auto is_left = [&](const std::string& word) { return absl::c_linear_search(left, word); };
  const auto is_option = [&](const std::string& word) {
    return absl::StartsWith(word, "-") && is_left(word);
  };
  const auto first = absl::c_find_if(words, is_left);
  const std::string word = first == words.end() ? left.front() : *first;
  if (!app->get_subcommands(nullptr).empty() && !absl::StartsWith(word, "-")) {
    return absl::StrCat(NoSuchCommand(app, word), "; ", SeeHelp(app));
  }
  // Report options before other words: a word after an unknown option may be its value.
  const auto option = absl::c_find_if(words, is_option);
  if (option == words.end()) {
    return absl::StrCat(word, ": `", FullName(app), "` does not take this argument; ",
                        SeeHelp(app));
  }
  return NoSuchOption(app, option->substr(0, option->find('=')));
}

absl::Status WithExitStatus(absl::Status error, int exit_status) {
  error.SetPayload(kExitStatus, absl::Cord(absl::StrCat(exit_status)));
  return error;
}

int ExitStatusOf(const absl::Status& error, int otherwise) {
  int exit_status = 0;
  const auto given = error.GetPayload(kExitStatus);
  const bool is_given = given.has_value() && absl::SimpleAtoi(std::string(*given), &exit_status);
  return is_given ? exit_status : otherwise;
}

absl::Status InOptionNames(const CLI::App* command, const absl::Status& status) {
  absl::string_view message = status.message();
  const std::string field(message.substr(0, message.find(':')));
  const std::string name = absl::StrCat("--", absl::StrReplaceAll(field, {{"_", "-"}}));
  if (status.ok() || !IsEngineOption(name)) return status;
  if (command->get_option_no_throw(name) == nullptr) return status;
  message.remove_prefix(field.size());
  return absl::Status(status.code(), absl::StrCat(name, message));
}

}  // namespace tandem
