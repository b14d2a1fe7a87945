// The text of the source tree, as the rules of tests/tidy_test.cc read it.
#ifndef TANDEM_TESTS_TIDY_SOURCE_TEXT_H_
#define TANDEM_TESTS_TIDY_SOURCE_TEXT_H_

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tidy {

// Contents of files by their path from the root, with forward slashes.
using Files = std::map<std::string, std::string>;

// Violations of rules, each as "path:line: the text found, the text allowed".
using Violations = std::vector<std::string>;

inline constexpr std::string_view kHostedWorkflow = ".github/workflows/ci.yml";

struct SourceTree {
  Files files;                  // sources, build files, scripts and documents
  std::set<std::string> paths;  // every file and folder, including those of `files`
};

// Reads the tree under `root`, except build/ and hidden folders other than .ci and .github. Does
// not read the contents of tests/data/, which are not sources.
SourceTree ReadSourceTree(const std::filesystem::path& root);

bool IsHeader(std::string_view path);  // .h .cuh
bool IsCuda(std::string_view path);    // .cu .cuh
bool IsCpp(std::string_view path);     // .h .cc .cu .cuh
// *_test.cc, *_benchmark.cc, *_fuzz.cc, *_testing.h, *_testing.cc, and all of tests/ and
// benchmarks/.
bool IsTest(std::string_view path);

// Returns "kernels" for "kernels/cpu/x.cc", and an empty string for a file at the root.
std::string_view TopFolder(std::string_view path);

// Returns the lines without their newlines. Line n of an editor is at index n - 1.
std::vector<std::string_view> Lines(std::string_view text);

// Calls visit(line number from 1, line) for every line.
void ForEachLine(std::string_view text, const std::function<void(size_t, std::string_view)>& visit);

// Returns the number of characters.
size_t Columns(std::string_view utf8);

// Returns the text with blanks in place of comments and of the contents of string and character
// literals.
std::string CodeOnly(std::string_view cpp_text);

// Returns the text with blanks in place of blocks of code and of code between backquotes, which
// ends with its paragraph at the latest.
std::string ProseOnly(std::string_view document);

// Returns whether `line` contains `word` without a letter, digit or underscore next to it.
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
