#ifndef TANDEM_TESTS_PROGRAM_PATH_H_
#define TANDEM_TESTS_PROGRAM_PATH_H_

#include <string>

namespace tandem {

// The path of the program `tandem` of this build.
std::string ProgramPath();

}  // namespace tandem

#endif  // TANDEM_TESTS_PROGRAM_PATH_H_
