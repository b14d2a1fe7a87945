// tandem help: lists the commands, or the options of one command, or writes manual pages.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/output_folder.h"
#include "base/status_macros.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
#include "tools/man_page.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

absl::StatusOr<const CLI::App*> Find(const CLI::App* app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const CLI::App* const command = FindCommand(app, word);
    if (command == nullptr) return absl::InvalidArgumentError(NoSuchCommand(app, word));
    app = command;
  }
  return app;
}

absl::Status WritePages(const CLI::App* app, const std::string& folder) {
  for (const auto& [name, page] : ManPagesOf(app, TANDEM_VERSION)) {
    RETURN_IF_ERROR(ReplaceFile(absl::StrCat(folder, "/", name, ".1"), page));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddHelpCommand(CLI::App* program) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app =
      program->add_subcommand("help", "List the commands, or the options of one command");
  app->add_option("command", *words, "The command whose options to list")->type_name("COMMAND");
  const auto folder = std::make_shared<std::string>();
  OptionGroup(app).Add("--man", "DIR", folder.get(),
                       "Write manual pages of the command and of those below it to this folder");
  AddExamples(app, {"tandem help generate", "tandem help bench speculation"});
  return {.app = app,
          .check = [=] { return Find(program, *words).status(); },
          .run = [=]() -> absl::Status {
            ASSIGN_OR_RETURN(const CLI::App* const found, Find(program, *words));
            return folder->empty() ? Print(HelpOf(found)) : WritePages(found, *folder);
          }};
}

}  // namespace tandem
