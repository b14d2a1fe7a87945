#ifndef TANDEM_BASE_STRING_VIEW_H_
#define TANDEM_BASE_STRING_VIEW_H_

#include <cstddef>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// The same characters as Abseil's functions take them: its type is another where Abseil was built
// as C++14, as Debian's is.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
// Bytes as characters.
inline absl::string_view View(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tandem

#endif  // TANDEM_BASE_STRING_VIEW_H_
