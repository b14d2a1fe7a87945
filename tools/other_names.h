// The names that other engines, above all llama.cpp, have for options.
#ifndef TANDEM_TOOLS_OTHER_NAMES_H_
#define TANDEM_TOOLS_OTHER_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace tandem {

// The arguments after the program's name, with other engines' names of options replaced by those of
// the command: --temperature for --temp. Values of options, and words after --, stay as they are.
// INVALID_ARGUMENT for a name with another meaning here, or without one: "-ngl: no such option of
// `tandem generate`: ...". The parser would read it as several options, and -hf as -h.
absl::StatusOr<std::vector<std::string>> WordsOf(const CLI::App* program, int argc,
                                                 const char* const* argv);

// The same for one word that names an option of `command`: "--temperature=0" for "--temp=0".
absl::StatusOr<std::string> InOwnNames(const CLI::App* command, const std::string& word);

}  // namespace tandem

#endif  // TANDEM_TOOLS_OTHER_NAMES_H_
