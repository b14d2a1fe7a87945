// Adds to the parser of options: llama.cpp's short names, and errors that help.
#ifndef TANDEM_TOOLS_COMMAND_LINE_H_
#define TANDEM_TOOLS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tandem {

// The words after the program's name. Names that the parser cannot have, of more than one letter
// after one dash, are replaced: -md by --draft.
std::vector<std::string> WordsOf(int argc, const char* const* argv);

// The command that the words have named, a benchmark of `bench` for instance; `program` itself if
// they have named none.
const CLI::App* NamedCommand(const CLI::App* program);
// With the names of its parents: "tandem bench kernels".
std::string FullName(const CLI::App* app);

// The text that `--help` prints.
std::string HelpOf(const CLI::App* app);

// An error for words that `program` could not parse, with the probable meaning and where to find
// help: "--promt: no such option of `tandem generate`, did you mean --prompt? ...".
std::string Explained(const CLI::App* program, const std::vector<std::string>& words,
                      const CLI::ParseError& error);
// "`word`: no such command, did you mean ...?"
std::string NoSuchCommand(const CLI::App* app, absl::string_view word);

// `status`, naming the command's option where it begins with the engine's field that the option
// sets: "--kv-memory: ..." for "kv_memory: ...".
absl::Status InOptionNames(const CLI::App* command, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_TOOLS_COMMAND_LINE_H_
