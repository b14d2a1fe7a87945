// Runs the built program as a user would.
#ifndef TANDEM_TESTS_RUN_PROGRAM_H_
#define TANDEM_TESTS_RUN_PROGRAM_H_

#include <string>
#include <vector>

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_TESTS_RUN_PROGRAM_H_
