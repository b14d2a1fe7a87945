#include "tests/program_path.h"

namespace tandem {

std::string ProgramPath() { return TANDEM_PROGRAM; }

}  // namespace tandem
