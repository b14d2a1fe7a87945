#ifndef TANDEM_BASE_STRING_VIEW_H_
#define TANDEM_BASE_STRING_VIEW_H_

#include <cstddef>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// Converts to the string view type of Abseil's functions. It differs from std::string_view if
// Abseil was built as C++14, for example in Debian.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
// The reverse conversion.
inline std::string_view StdView(absl::string_view text) { return {text.data(), text.size()}; }
// Returns bytes as characters.
inline absl::string_view View(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tandem

#endif  // TANDEM_BASE_STRING_VIEW_H_
