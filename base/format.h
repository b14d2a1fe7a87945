#ifndef TANDEM_BASE_FORMAT_H_
#define TANDEM_BASE_FORMAT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "base/check.h"

namespace tandem {

// As absl::StrFormat, which allocates in a destructor: without memory it ends the program. This one
// throws.
template <typename... Args>
std::string Format(const absl::FormatSpec<Args...>& format, const Args&... args) {
  std::array<char, 512> start;
  const int size = absl::SNPrintF(start.data(), start.size(), format, args...);
  TANDEM_CHECK(size >= 0);
  if (static_cast<size_t>(size) < start.size()) return std::string(start.data(), size);
  std::string text(size, '\0');
  absl::SNPrintF(text.data(), size + 1, format, args...);
  return text;
}

// A size in decimal units with three digits: "4.37 GB", "98.4 MB", "0 bytes".
std::string DecimalSize(int64_t bytes);

}  // namespace tandem

#endif  // TANDEM_BASE_FORMAT_H_
