// Options that a file and the environment give.
#ifndef TANDEM_TOOLS_SETTINGS_H_
#define TANDEM_TOOLS_SETTINGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tools/option_table.h"
#include "tools/other_names.h"

namespace tandem {

// Returns `typed`, the command line, with the options that it does not override:
// - those of the environment: TANDEM_OPT_DRAFT_TOKENS=4 is --draft-tokens 4; an empty variable
//   counts as not set;
// - below them, those of the file in TOML that --config or TANDEM_OPT_CONFIG names. Its table
//   [serve] is of this command, [bench] of all commands of `bench`, [bench.speculation] of this one
//   alone; keys outside of tables are of all commands that have the option. The narrowest counts.
// A help or a version needs no options, so nothing is added to it. Options of other commands are
// left out. INVALID_ARGUMENT "TANDEM_OPT_X: ...", "FILE: KEY: ..." or "FILE: TABLE: KEY: ..." for
// an option or a table that no command has, and as WordsOfEntry; other errors as ReadTomlFile.
// `environment`: "NAME=value" each, ends with null.
absl::StatusOr<std::vector<OptionWords>> WithSettings(const CLI::App* program, TypedWords typed,
                                                      const char* const* environment);

}  // namespace tandem

#endif  // TANDEM_TOOLS_SETTINGS_H_
