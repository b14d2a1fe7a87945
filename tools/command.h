#ifndef TANDEM_TOOLS_COMMAND_H_
#define TANDEM_TOOLS_COMMAND_H_

#include <functional>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace tandem {

// One command of the program. Its options live as long as the two functions.
struct Command {
  CLI::App* app = nullptr;
  // Checks what the parser cannot, and fetches models. An error is a wrong command line, exit
  // status 2, or that of WithExitStatus.
  std::function<absl::Status()> check;
  // Runs the command. Results go through Print (tools/standard_streams.h), everything else to
  // stderr, where failed writes are ignored. An error means exit status 1, or that of
  // WithExitStatus; results that could not be written are an error.
  std::function<absl::Status()> run;
};

// Gives an error the exit status `exit_status`, which ExitStatusOf returns. Defined in
// tools/command_line.cc.
absl::Status WithExitStatus(absl::Status error, int exit_status);
int ExitStatusOf(const absl::Status& error, int otherwise);

// Each adds its command to `program`. The command is defined in tools/<name>_command.cc.
Command AddGenerateCommand(CLI::App* program);
Command AddChatCommand(CLI::App* program);
Command AddFetchCommand(CLI::App* program);
Command AddTokenizeCommand(CLI::App* program);
Command AddFeaturesCommand(CLI::App* program);
Command AddInspectCommand(CLI::App* program);
Command AddMakeRandomCommand(CLI::App* program);
Command AddQuantizeCommand(CLI::App* program);
Command AddKvStoreCommand(CLI::App* program);
Command AddCacheCommand(CLI::App* program);
Command AddPairCommand(CLI::App* program);
Command AddDraftsCommand(CLI::App* program);
Command AddBenchCommand(CLI::App* program);
Command AddLabCommand(CLI::App* program);
Command AddVerifyLosslessCommand(CLI::App* program);
Command AddProveCommand(CLI::App* program);
Command AddServeCommand(CLI::App* program);
Command AddRankCommand(CLI::App* program);
Command AddHelpCommand(CLI::App* program);
Command AddCompletionCommand(CLI::App* program);
Command AddCompleteCommand(CLI::App* program);  // in tools/completion_command.cc

}  // namespace tandem

#endif  // TANDEM_TOOLS_COMMAND_H_
