#include "tests/tidy/source_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tandem::tidy {
namespace {

namespace fs = std::filesystem;

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool IsText(std::string_view path) {
  static constexpr std::array<std::string_view, 9> kEndings = {
      ".h", ".cc", ".cu", ".cuh", ".cmake", ".cmake.in", ".md", ".py", ".sh"};
  for (std::string_view ending : kEndings) {
    if (path.ends_with(ending)) return true;
  }
  return path.ends_with("CMakeLists.txt") || path.starts_with("cmake/") || path == "dev" ||
         path == ".ci/run" || path == kHostedWorkflow || path == ".gitignore" ||
         path == "CMakePresets.json";
}

bool IsSkippedFolder(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (name.starts_with(".")) return path != ".ci" && path != ".github";
  return path == "build" || name == "__pycache__";
}

// Each returns the end of the comment or literal that starts at `start`, or `start` if none starts
// there.
size_t SkipComment(std::string_view text, size_t start) {
  const std::string_view rest = text.substr(start);
  if (rest.starts_with("//")) return std::min(text.find('\n', start), text.size());
  if (!rest.starts_with("/*")) return start;
  const size_t end = text.find("*/", start + 2);
  return end == text.npos ? text.size() : end + 2;
}

size_t SkipRawString(std::string_view text, size_t start) {
  if (!text.substr(start).starts_with("R\"")) return start;
  const size_t open = text.find('(', start);
  if (open == text.npos) return start;
  const std::string close = ")" + std::string(text.substr(start + 2, open - start - 2)) + "\"";
  const size_t end = text.find(close, open);
  return end == text.npos ? text.size() : end + close.size();
}

size_t SkipQuoted(std::string_view text, size_t start) {
  const char quote = text[start];
  const bool digit_separator = quote == '\'' && start > 0 && IsWordCharacter(text[start - 1]);
  if ((quote != '"' && quote != '\'') || digit_separator) return start;
  size_t at = start + 1;
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream contents;
  contents << in.rdbuf();
  return contents.str();
}

}  // namespace

SourceTree ReadSourceTree(const fs::path& root) {
  SourceTree tree;
  for (auto at = fs::recursive_directory_iterator(root); at != fs::end(at); ++at) {
    const std::string path = fs::relative(at->path(), root).generic_string();
    if (at->is_directory() && IsSkippedFolder(path)) {
      at.disable_recursion_pending();
      continue;
    }
    tree.paths.insert(path);
    const bool is_data = path.starts_with("tests/data/");
    if (at->is_regular_file() && IsText(path) && !is_data) tree.files[path] = ReadAll(at->path());
  }
  return tree;
}

bool IsHeader(std::string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }
bool IsCuda(std::string_view path) { return path.ends_with(".cu") || path.ends_with(".cuh"); }
bool IsCpp(std::string_view path) {
  return IsHeader(path) || IsCuda(path) || path.ends_with(".cc");
}
bool IsTest(std::string_view path) {
  return path.ends_with("_test.cc") || path.ends_with("_benchmark.cc") ||
         path.ends_with("_fuzz.cc") || path.ends_with("_testing.h") ||
         path.ends_with("_testing.cc") || path.starts_with("tests/") ||
         path.starts_with("benchmarks/");
}

std::string_view TopFolder(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void ForEachLine(std::string_view text,
                 const std::function<void(size_t, std::string_view)>& visit) {
  const std::vector<std::string_view> lines = Lines(text);
  for (size_t i = 0; i < lines.size(); ++i) visit(i + 1, lines[i]);
}

size_t Columns(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string CodeOnly(std::string_view text) {
  std::string code(text);
  const auto blank = [&code](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  for (size_t at = 0; at < text.size();) {
    if (const size_t end = SkipComment(text, at); end != at) {
      blank(at, end);
      at = end;
    } else if (const size_t raw_end = SkipRawString(text, at); raw_end != at) {
      blank(at, raw_end);
      at = raw_end;
    } else if (const size_t quote_end = SkipQuoted(text, at); quote_end != at) {
      blank(at + 1, quote_end - 1);
      at = quote_end;
    } else {
      ++at;
    }
  }
  return code;
}

std::string ProseOnly(std::string_view document) {
  std::string prose(document);
  bool is_block = false;
  size_t open = document.npos;  // the backquotes before the code, or none
  size_t num_quotes = 0;
  size_t at = 0;
  for (std::string_view line : Lines(document)) {
    const size_t first = line.find_first_not_of(' ');
    const bool is_fence = first != line.npos && line.substr(first).starts_with("```");
    if (is_block || is_fence) std::fill_n(prose.begin() + at, line.size(), ' ');
    if (is_fence) is_block = !is_block;
    if (is_block || is_fence || first == line.npos) open = document.npos;
    for (size_t i = 0; i < line.size() && !is_block && !is_fence;) {
      const size_t begin = std::min(line.find('`', i), line.size());
      i = std::min(line.find_first_not_of('`', begin), line.size());
      if (begin == line.size()) break;
      if (open == document.npos) {
        open = at + begin;
        num_quotes = i - begin;
      } else if (i - begin == num_quotes) {
        for (size_t c = open; c < at + i; ++c) {
          if (prose[c] != '\n') prose[c] = ' ';
        }
        open = document.npos;
      }
    }
    at += line.size() + 1;
  }
  return prose;
}

bool HasWord(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool starts = at == 0 || !IsWordCharacter(line[at - 1]);
    const bool ends = end == line.size() || !IsWordCharacter(line[end]);
    if (starts && ends) return true;
  }
  return false;
}

std::vector<Include> Includes(std::string_view text) {
  const std::string code = CodeOnly(text);
  const std::vector<std::string_view> code_lines = Lines(code);
  const std::vector<std::string_view> lines = Lines(text);
  std::vector<Include> includes;
  for (size_t i = 0; i < code_lines.size(); ++i) {
    const size_t word = code_lines[i].find("include");
    const size_t hash = code_lines[i].find_first_not_of(" \t");
    if (word == code_lines[i].npos || code_lines[i][hash] != '#') continue;
    const size_t open = code_lines[i].find_first_of("<\"", word);
    if (open == code_lines[i].npos) continue;
    const bool angle = code_lines[i][open] == '<';
    const size_t close = std::min(lines[i].find(angle ? '>' : '"', open + 1), lines[i].size());
    includes.push_back({.line = static_cast<int>(i) + 1,
                        .angle = angle,
                        .path = std::string(lines[i].substr(open + 1, close - open - 1))});
  }
  return includes;
}

std::string At(std::string_view path, size_t line, std::string_view message) {
  std::ostringstream out;
  out << path << ":" << line << ": " << message;
  return out.str();
}

}  // namespace tandem::tidy
