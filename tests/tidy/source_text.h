// The text of the source tree, as the rules of tests/tidy_test.cc read it.
#ifndef TANDEM_TESTS_TIDY_SOURCE_TEXT_H_
#define TANDEM_TESTS_TIDY_SOURCE_TEXT_H_

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tidy {

// Contents by path from the root, with forward slashes.
using Files = std::map<std::string, std::string>;

// What breaks a rule, each as "path:line: what was found, what is allowed".
using Violations = std::vector<std::string>;

struct SourceTree {
  Files files;                  // sources, build files, scripts and documents
  std::set<std::string> paths;  // every file and folder, those of `files` too
};

// Reads the tree under `root` but for build/ and hidden folders other than .ci. The contents of
// tests/data/ are not sources.
SourceTree ReadSourceTree(const std::filesystem::path& root);

bool IsHeader(std::string_view path);  // .h .cuh
bool IsCuda(std::string_view path);    // .cu .cuh
bool IsCpp(std::string_view path);     // .h .cc .cu .cuh
// *_test.cc, *_benchmark.cc, *_fuzz.cc, *_testing.h, and all of tests/ and benchmarks/.
bool IsTest(std::string_view path);

// "kernels" for "kernels/cpu/x.cc"; nothing for a file at the root.
std::string_view TopFolder(std::string_view path);

// The lines, without their ends. Line n of an editor is at n - 1.
std::vector<std::string_view> Lines(std::string_view text);

// The same text with blanks for comments and for what is inside string and character literals.
std::string CodeOnly(std::string_view cpp_text);

// True if `word` stands in `line` with no letter, digit or underscore beside it.
bool HasWord(std::string_view line, std::string_view word);

struct Include {
  int line = 0;        // from 1
  bool angle = false;  // <path> and not "path"
  std::string path;
};
std::vector<Include> Includes(std::string_view cpp_text);

// "path:line: message".
std::string At(std::string_view path, size_t line, std::string_view message);

}  // namespace tandem::tidy

#endif  // TANDEM_TESTS_TIDY_SOURCE_TEXT_H_
