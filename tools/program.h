// The program's command line: its commands, and the options that it has itself.
#ifndef TANDEM_TOOLS_PROGRAM_H_
#define TANDEM_TOOLS_PROGRAM_H_

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tools/command.h"

namespace tandem {

// Thread-compatible. Parses once. Defined in tools/bench/program.cc, because one of the commands is
// defined there.
class Program {
 public:
  // `help_width`: the number of columns of a help. `version`: the text that --version prints.
  Program(int help_width, const std::string& version);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  CLI::App* app() { return &app_; }

  // Parses a command line, which WithSettings (tools/settings.h) has completed. Returns the text to
  // print in place of a run for --help, --version or no command, and nothing if command() is to be
  // run. INVALID_ARGUMENT says what is wrong, as Explained (tools/command_line.h) does. The command
  // has not checked its options yet.
  absl::StatusOr<std::optional<std::string>> Parse(const std::vector<std::string>& words);

  // The command that was parsed. REQUIRES: Parse has returned nothing.
  const Command& command() const;
  const std::string& log_level() const { return log_level_; }

 private:
  CLI::App app_;
  std::string log_level_ = "info";
  std::string config_;  // which WithSettings (tools/settings.h) reads before the parse
  std::vector<Command> commands_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROGRAM_H_
