#ifndef TANDEM_TOOLS_CHILD_PROCESS_H_
#define TANDEM_TOOLS_CHILD_PROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct ChildEnd {
  int exit_status = -1;    // -1 if a signal ended it
  std::string last_words;  // the last line of its standard error that is not blank
};

// Runs a program, found as a shell finds it, to its end, in `folder` and without standard input.
// Pass a folder of ours: modules of the current one would replace Python's own. The program's
// output goes to our standard error if `shows_output`, else nowhere. While it runs, Ctrl-C ends it
// and not us. NOT_FOUND if there is no such program.
absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& words, const std::string& folder,
                                  bool shows_output);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHILD_PROCESS_H_
