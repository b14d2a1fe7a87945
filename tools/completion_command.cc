// tandem completion: the script with which a shell completes command lines; and tandem complete,
// which that script runs.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "tandem/parameter.h"
#include "tools/command.h"
#include "tools/completion.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"
#include "tools/text_input.h"

namespace tandem {

Command AddCompletionCommand(CLI::App* program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = program->add_subcommand(
      "completion", "Print the script with which a shell completes command lines");
  app->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check([](const std::string& text) {
        return WithoutName("SHELL", CheckOneOf("SHELL", text, {{"bash", "zsh", "fish"}}));
      });
  AddExamples(app, {"tandem completion bash", "tandem completion zsh", "tandem completion fish"});
  return {.app = app,
          .check = [] { return absl::OkStatus(); },
          .run = [shell] { return Print(CompletionScript(*shell)); }};
}

Command AddCompleteCommand(CLI::App* program) {
  CLI::App* app = program->add_subcommand(
      "complete", "Complete the last of the words on standard input, each of which ends with NUL");
  app->group("");  // hidden: users do not type it
  return {.app = app,
          .check = [] { return absl::OkStatus(); },
          .run = [program]() -> absl::Status {
            ASSIGN_OR_RETURN(TextInput input, TextInput::Open("-"));
            ASSIGN_OR_RETURN(const std::string text, input.ReadRest());
            const absl::string_view zeros("\0", 1);
            const Completions found = CompletionsOf(
                program, absl::StrSplit(absl::StripSuffix(text, zeros), absl::ByChar('\0')));
            std::string lines;
            for (const auto& [word, help] : found.words) {
              absl::StrAppend(&lines, word, "\t", help, "\n");
            }
            if (found.has_files) absl::StrAppend(&lines, ":files\n");
            return Print(lines);
          }};
}

}  // namespace tandem
