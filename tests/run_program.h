// Runs the built program as a user would.
#ifndef TANDEM_TESTS_RUN_PROGRAM_H_
#define TANDEM_TESTS_RUN_PROGRAM_H_

#include <string>
#include <vector>

#include "tandem/json_value.h"

namespace tandem {

// Exit statuses of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitWrongLine = 2;

// Returns two lists of arguments as one.
inline std::vector<std::string> Joined(std::vector<std::string> first,
                                       const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct ProgramRun {
  int exit_status = -1;  // -1 if a signal ended it
  std::string out;
  std::string err;
};

// Runs `tandem` with these arguments and this standard input.
ProgramRun RunProgram(const std::vector<std::string>& arguments, const std::string& input = "");
// Runs a script of bash in which "$0" is the program and "$@" the arguments.
ProgramRun RunScript(const std::string& script, const std::vector<std::string>& arguments,
                     const std::string& input = "");

// Returns the one line that `tandem` prints with these arguments and --json.
JsonValue RunJson(const std::vector<std::string>& arguments, const std::string& input = "");

// Expects one of these exit statuses, empty standard output and a one-line error.
void ExpectRefused(const ProgramRun& run, const std::vector<int>& exit_statuses);

}  // namespace tandem

#endif  // TANDEM_TESTS_RUN_PROGRAM_H_
