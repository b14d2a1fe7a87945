// Options of a command that are not from the command line but from a table, such as one in TOML.
#ifndef TANDEM_TOOLS_OPTION_TABLE_H_
#define TANDEM_TOOLS_OPTION_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem {

// An option and the words that give it on a command line: "--draft-tokens", "4"; or another word,
// without an option.
struct OptionWords {
  const CLI::Option* option = nullptr;
  std::vector<std::string> words{};  // none for a flag that is false, and for an empty list
  // Says in errors where the option is given: "f.toml: draft-tokens"; empty on the command line.
  std::string source{};
};

// The words of all entries.
std::vector<std::string> WordsIn(const std::vector<OptionWords>& entries);

// Returns the entries of `lower` that stay next to those of `higher`: without the options that
// `higher` gives, and without those that exclude one of them.
std::vector<OptionWords> NotOverridden(std::vector<OptionWords> lower,
                                       const std::vector<OptionWords>& higher);

// The option that `key` means: its long name without the dashes, in which _ counts as -, or another
// engine's name for it (tools/other_names.h). INVALID_ARGUMENT "--KEY: ...", with the nearest
// option, if `command` has no such option.
absl::StatusOr<const CLI::Option*> OptionOfKey(const CLI::App* command, const std::string& key);

// Reads one entry of a table. `value` is true or false for a flag, else a string or a number, and
// for an option that can be repeated perhaps an array of these. Only the parser checks what the
// option allows. INVALID_ARGUMENT "--KEY: ..." as OptionOfKey, or if the value has another type.
absl::StatusOr<OptionWords> WordsOfEntry(const CLI::App* command, const std::string& key,
                                         const JsonValue& value);

// The entries of `table`, an object. INVALID_ARGUMENT "SOURCE: KEY: ..." as WordsOfEntry, and if
// two keys mean the same option.
absl::StatusOr<std::vector<OptionWords>> WordsOfTable(const CLI::App* command,
                                                      absl::string_view source,
                                                      const JsonValue& table);

// Returns a parser's error about such words as one about the table: "SOURCE: draft-tokens: ..." for
// "--draft-tokens: ...".
absl::Status InSource(absl::string_view source, const absl::Status& status);
// The same for the entry whose option the error names first; other errors stay as they are.
absl::Status InSource(const std::vector<OptionWords>& entries, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_TOOLS_OPTION_TABLE_H_
