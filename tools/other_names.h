// The names that other engines, above all llama.cpp, have for options and commands.
#ifndef TANDEM_TOOLS_OTHER_NAMES_H_
#define TANDEM_TOOLS_OTHER_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/option_table.h"

namespace CLI {
class App;
}

namespace tandem {

// A command line after the program's name.
struct TypedWords {
  const CLI::App* command = nullptr;  // the one that is named last; the program without one
  std::vector<OptionWords> entries{};
  size_t num_before = 0;  // how many entries end with the command's name
};

// Splits a command line into options and other words, and replaces other engines' names of options
// by those of the command: --temperature for --temp. Values of options, and words after --, stay as
// they are. INVALID_ARGUMENT for a name with another meaning here, or without one: "-ngl: no such
// option of `tandem generate`: ...". The parser would read it as several options, and -hf as -h.
absl::StatusOr<TypedWords> WordsOf(const CLI::App* program, const std::vector<std::string>& words);

// The same for one word that names an option of `command`: "--temperature=0" for "--temp=0".
absl::StatusOr<std::string> InOwnNames(const CLI::App* command, const std::string& word);

// The command that does what another engine's command of this name does: "`tandem fetch NAME`
// fetches a model" for "pull"; empty without one.
absl::string_view AdviceOnCommand(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_TOOLS_OTHER_NAMES_H_
