// Manual pages of the program, from the same options, texts and examples as --help.
#ifndef TANDEM_TOOLS_MAN_PAGE_H_
#define TANDEM_TOOLS_MAN_PAGE_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace tandem {

// Returns the pages of `app` and of its commands that are not hidden, in roff, by their names:
// "tandem-serve". `version` is the program's.
std::map<std::string, std::string> ManPagesOf(const CLI::App* app, absl::string_view version);

}  // namespace tandem

#endif  // TANDEM_TOOLS_MAN_PAGE_H_
