#ifndef TANDEM_BASE_STRING_VIEW_H_
#define TANDEM_BASE_STRING_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace tandem {

// The same characters as Abseil's functions take them: its type is another where Abseil was built
// as C++14, as Debian's is.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace tandem

#endif  // TANDEM_BASE_STRING_VIEW_H_
