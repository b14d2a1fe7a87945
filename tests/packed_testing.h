// For tests: a stand-in for a file of packed weights.
#ifndef TANDEM_TESTS_PACKED_TESTING_H_
#define TANDEM_TESTS_PACKED_TESTING_H_

#include <chrono>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/folder_testing.h"

namespace tandem {

// Makes a file that was last used `hours` ago. Returns its path.
inline std::string Aged(const std::string& path, int hours) {
  namespace fs = std::filesystem;
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  return path;
}

// Writes 1,000 bytes that begin as a packed file of `model` does: a header of two bytes, and the
// identity. It was last used `hours` ago. Returns its path.
inline std::string WritePacked(const TestFolder& folder, absl::string_view name, int hours,
                               absl::string_view model = "/m/a.gguf") {
  std::string bytes = absl::StrCat(std::string("\2\0\0\0\0\0\0\0", 8),
                                   "{}version 3\nquantized q8_0\n", model, " 12 34 56\n");
  bytes.resize(1000, 'x');
  return Aged(folder.Write(absl::StrCat(name, "-0123456789abcdef.safetensors"), bytes), hours);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_PACKED_TESTING_H_
