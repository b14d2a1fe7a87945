// Additions to the option parser: names of commands, and errors that suggest a correction.
#ifndef TANDEM_TOOLS_COMMAND_LINE_H_
#define TANDEM_TOOLS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace tandem {

// The command that was parsed, for example a benchmark of `bench`; `program` itself if the
// arguments name no command.
const CLI::App* NamedCommand(const CLI::App* program);
// The command of `app` with this name; null without one.
const CLI::App* FindCommand(const CLI::App* app, absl::string_view name);
// The option of `command`, or of a parent, with this name: "--seed"; null without one.
const CLI::Option* FindOption(const CLI::App* command, const std::string& name);
// The command's name with those of its parents: "tandem bench kernels".
std::string FullName(const CLI::App* app);

// The text that `--help` prints.
std::string HelpOf(const CLI::App* app);

// The error message for words that `program` could not parse, with a suggestion and a pointer to
// the help: "--promt: no such option of `tandem generate`, did you mean --prompt? ...".
std::string Explained(const CLI::App* program, const std::vector<std::string>& words,
                      const CLI::ParseError& error);
// "`word`: no such command, did you mean ...?"
std::string NoSuchCommand(const CLI::App* app, absl::string_view word);
// "`name`: no such option of `app`, did you mean ...?", or the advice if there is some, and a
// pointer to the help.
std::string NoSuchOption(const CLI::App* app, const std::string& name,
                         absl::string_view advice = "");
// "`name`: no such option of the commands of `app`, did you mean ...?"
std::string NoSuchOptionOfCommands(const CLI::App* app, const std::string& name);

// Returns `status` with an engine field at its beginning replaced by the command's option for it:
// "--kv-memory: ..." for "kv_memory: ...".
absl::Status InOptionNames(const CLI::App* command, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_TOOLS_COMMAND_LINE_H_
