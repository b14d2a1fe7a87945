#include "tests/tidy/document_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace tandem::tidy {
namespace {

constexpr size_t kMaxColumns = 120;

struct Page {
  std::string_view path;
  size_t max_words = 0;
};

constexpr size_t kMaxWords = 1200;

// Pages that are looked up rather than read.
constexpr std::array<Page, 8> kLongPages = {{{"docs/bug_catalogue.md", 5000},
                                             {"docs/decisions.md", 2800},
                                             {"docs/command_line.md", 1700},
                                             {"docs/models.md", 1600},
                                             {"docs/constraints.md", 1300},
                                             {"docs/benchmarks/cuda.md", 2200},
                                             {"docs/benchmarks/other_engines.md", 1400},
                                             {"docs/benchmarks/serving.md", 1300}}};

// Returns the targets of [text](target).
std::vector<std::string> LinkTargets(std::string_view line) {
  std::vector<std::string> targets;
  for (size_t at = line.find("]("); at != line.npos; at = line.find("](", at + 2)) {
    const size_t end = line.find_first_of(") ", at + 2);
    if (end != line.npos) targets.emplace_back(line.substr(at + 2, end - at - 2));
  }
  return targets;
}

// Returns whether the line has a command in backquotes of more than half a line, which is not
// wrapped.
bool HasLongCommand(std::string_view line) {
  for (size_t open = line.find('`'); open != line.npos;) {
    const size_t close = line.find('`', open + 1);
    if (close == line.npos) return false;
    if (close - open > kMaxColumns / 2) return true;
    open = line.find('`', close + 1);
  }
  return false;
}

// Returns the anchor of a heading in links: in lower case, with hyphens for spaces and without
// punctuation.
std::string AnchorOf(std::string_view heading) {
  std::string anchor;
  for (const char c : heading.substr(std::min(heading.find_first_not_of("# "), heading.size()))) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') anchor += '-';
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) {
      anchor += static_cast<char>(std::tolower(byte));
    }
  }
  return anchor;
}

std::set<std::string> AnchorsOf(std::string_view document) {
  std::set<std::string> anchors;
  ForEachLine(document, [&](size_t, std::string_view line) {
    if (line.starts_with('#')) anchors.insert(AnchorOf(line));
  });
  return anchors;
}

}  // namespace

Violations CheckDocumentWidth(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!path.ends_with(".md")) continue;
    bool is_code = false;
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      if (line.starts_with("```")) is_code = !is_code;
      const bool may_be_long =
          is_code || line.starts_with("|") || line.find("://") != line.npos || HasLongCommand(line);
      if (!may_be_long && Columns(line) > kMaxColumns) {
        violations.push_back(At(path, number, "is longer than 120 columns"));
      }
    });
  }
  return violations;
}

Violations CheckNumbersHaveZeros(const Files& files) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!path.ends_with(".md")) continue;
    ForEachLine(ProseOnly(text), [&, &path = path](size_t number, std::string_view line) {
      for (size_t at = line.find('.'); at != line.npos; at = line.find('.', at + 1)) {
        const char before = at == 0 ? ' ' : line[at - 1];
        const bool continues = std::isalnum(static_cast<unsigned char>(before)) != 0 ||
                               std::string_view("._/").find(before) != std::string_view::npos;
        if (continues || at + 1 == line.size() || !is_digit(line[at + 1])) continue;
        violations.push_back(At(path, number, "a number without a digit before its point"));
      }
    });
  }
  return violations;
}

Violations CheckPageLength(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!path.starts_with("docs/") || !path.ends_with(".md")) continue;
    const auto* const own =
        std::find_if(kLongPages.begin(), kLongPages.end(),
                     [&path = path](const Page& page) { return page.path == path; });
    const size_t limit = own == kLongPages.end() ? kMaxWords : own->max_words;
    std::istringstream in(text);
    const auto words = std::distance(std::istream_iterator<std::string>(in), {});
    if (static_cast<size_t>(words) <= limit) continue;
    violations.push_back(
        At(path, 1, "has " + std::to_string(words) + " words, allowed: " + std::to_string(limit)));
  }
  return violations;
}

Violations CheckMarkdownLinks(const SourceTree& tree) {
  Violations violations;
  const auto has_anchor = [&tree](const std::string& path, const std::string& anchor) {
    const auto document = tree.files.find(path);
    return anchor.empty() || document == tree.files.end() || !path.ends_with(".md") ||
           AnchorsOf(document->second).contains(anchor);
  };
  for (const auto& [path, text] : tree.files) {
    if (!path.ends_with(".md")) continue;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    ForEachLine(ProseOnly(text), [&, &path = path](size_t number, std::string_view line) {
      for (std::string target : LinkTargets(line)) {
        if (target.find(':') != target.npos) continue;
        const size_t hash = std::min(target.find('#'), target.size());
        const std::string anchor = hash == target.size() ? "" : target.substr(hash + 1);
        target.resize(hash);
        std::string resolved = path;
        if (!target.empty()) resolved = (folder / target).lexically_normal().generic_string();
        if (resolved.ends_with("/")) resolved.pop_back();
        const bool exists = resolved == "." || tree.paths.contains(resolved);
        if (exists && has_anchor(resolved, anchor)) continue;
        if (exists) target += "#" + anchor;
        violations.push_back(At(path, number, "links to " + target + ", which does not exist"));
      }
    });
  }
  return violations;
}

}  // namespace tandem::tidy
