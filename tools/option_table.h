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

// An option, and the words that give it on a command line: "--draft-tokens", "4".
struct OptionWords {
  const CLI::Option* option = nullptr;
  std::vector<std::string> words;
};

// Reads one entry of a table. `key` is an option's long name without the dashes, in which _ counts
// as -, or another engine's name for it (tools/other_names.h). `value` is true or false for a flag
// (false: no words), else a string or a number, and for an option that can be repeated perhaps an
// array of these. Only the parser checks what the option allows. INVALID_ARGUMENT
// "SOURCE: KEY: ..." if `command` has no such option, with the nearest one, or if the value has
// another type.
absl::StatusOr<OptionWords> WordsOfEntry(const CLI::App* command, absl::string_view source,
                                         const std::string& key, const JsonValue& value);

// The words of all entries of `table`, an object. INVALID_ARGUMENT as WordsOfEntry, and if two keys
// mean the same option.
absl::StatusOr<std::vector<std::string>> WordsOfTable(const CLI::App* command,
                                                      absl::string_view source,
                                                      const JsonValue& table);

// Returns a parser's error about such words as one about the table: "SOURCE: draft-tokens: ..." for
// "--draft-tokens: ...".
absl::Status InSource(absl::string_view source, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_TOOLS_OPTION_TABLE_H_
