// tandem help: lists the commands, or the options of one command.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "base/status_macros.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

absl::StatusOr<CLI::App*> Find(CLI::App* app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::vector<CLI::App*> commands = app->get_subcommands(nullptr);
    const auto command =
        absl::c_find_if(commands, [&](const CLI::App* c) { return c->get_name() == word; });
    if (command == commands.end()) return absl::InvalidArgumentError(NoSuchCommand(app, word));
    app = *command;
  }
  return app;
}

}  // namespace

Command AddHelpCommand(CLI::App* program) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app =
      program->add_subcommand("help", "List the commands, or the options of one command");
  app->add_option("command", *words, "The command whose options to list")->type_name("COMMAND");
  return {.app = app,
          .check = [=] { return Find(program, *words).status(); },
          .run = [=]() -> absl::Status {
            ASSIGN_OR_RETURN(CLI::App* const found, Find(program, *words));
            return Print(HelpOf(found));
          }};
}

}  // namespace tandem
