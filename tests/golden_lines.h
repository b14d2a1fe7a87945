// For tests: the references' outputs for texts, one JSON object per line.
#ifndef TANDEM_TESTS_GOLDEN_LINES_H_
#define TANDEM_TESTS_GOLDEN_LINES_H_

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tandem/json_value.h"

namespace tandem {

inline std::vector<SortedJson> ReadGoldenLines(const std::string& path) {
  std::vector<SortedJson> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(SortedJson::parse(line));
  return lines;
}

// Returns the contents of a file compressed by xz, or an empty string if xz is not installed.
inline std::string ReadXz(const std::string& path) {
  std::string output;
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  return pclose(pipe) == 0 ? output : "";
}

}  // namespace tandem

#endif  // TANDEM_TESTS_GOLDEN_LINES_H_
