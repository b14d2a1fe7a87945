// Completion of command lines in shells.
#ifndef TANDEM_TOOLS_COMPLETION_H_
#define TANDEM_TOOLS_COMPLETION_H_

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem {

struct Completions {
  std::vector<std::pair<std::string, std::string>> words{};  // with their descriptions
  bool has_files = false;                                    // names of files may stand there, too
};

// Returns what may stand in place of the last of `words`, a command line after the program's name:
// commands, options, the names that an option allows, models. A value may follow its option after
// "=", in the same word or, as bash splits words, in one of its own.
Completions CompletionsOf(const CLI::App* program, std::vector<std::string> words);

// The names that the option allows; none if it takes other texts.
std::vector<std::string> AllowedNames(const CLI::Option* option);

// The script that completes command lines in bash, zsh or fish: it runs `tandem complete`.
// REQUIRES: `shell` is one of these.
std::string CompletionScript(const std::string& shell);

}  // namespace tandem

#endif  // TANDEM_TOOLS_COMPLETION_H_
