// tandem help: lists the commands, or the options of one command.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
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

}  // namespace

Command AddHelpCommand(CLI::App* program) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app =
      program->add_subcommand("help", "List the commands, or the options of one command");
  app->add_option("command", *words, "The command whose options to list")->type_name("COMMAND");
  AddExamples(app, {"tandem help generate", "tandem help bench speculation"});
  return {.app = app,
          .check = [=] { return Find(program, *words).status(); },
          .run = [=]() -> absl::Status {
            ASSIGN_OR_RETURN(const CLI::App* const found, Find(program, *words));
            return Print(HelpOf(found));
          }};
}

}  // namespace tandem
