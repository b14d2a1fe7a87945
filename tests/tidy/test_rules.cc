#include "tests/tidy/test_rules.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::tidy {
namespace {

struct Reader {
  std::string_view word;
  std::vector<std::string_view> allowed;  // prefixes of paths
  std::string_view rule;
};

// Faults that the proof plants to check that they are caught.
constexpr std::string_view kPlanted = "proof/planted_faults.";
constexpr std::string_view kPlantedMasks = "proof/mask_faults.";

const std::vector<Reader>& Readers() {
  static const std::vector<Reader> readers = {
      {"kDraft",
       {"base/philox", "draft/", kPlanted, kPlantedMasks},
       "drafts' random numbers are read in draft/"},
      {"kAccept", {"base/philox", "verify/", kPlanted}, "acceptance coins are read in verify/"},
      {"kResidual", {"base/philox", "verify/", kPlanted}, "residuals are drawn in verify/"},
      {"RandomPlace",
       {"base/philox", "model/sampling.", "model/device_sampling.", "draft/", "verify/", kPlanted,
        kPlantedMasks},
       "places of random numbers are chosen in draft/ and verify/"},
      {"FirstCounter",
       {"base/philox", "model/sampling.", "model/device_sampling."},
       "counters are formed in base/philox.cc for the sampler"},
      {"PhiloxBlock",
       {"base/philox", "kernels/cuda/sampling."},
       "blocks are computed in base/philox.cc, and on a device at counters formed there"},
      {"Philox4x32",
       {"base/philox", "tools/"},
       "counters are formed in base/philox.cc; tools can make weights with it"}};
  return readers;
}

// Returns the names of the tests in a source, as Suite.Name.
std::set<std::string> TestsIn(const std::string& text) {
  static const std::regex test(R"(\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  const std::string code = CodeOnly(text);
  std::set<std::string> names;
  for (std::sregex_iterator it(code.begin(), code.end(), test), end; it != end; ++it) {
    names.insert((*it)[1].str() + "." + (*it)[2].str());
  }
  return names;
}

// Returns whether a Python source defines this function, or this method if given as Class.method.
bool Defines(const std::string& text, const std::string& test) {
  const size_t dot = test.find('.');
  const bool has_class = dot != std::string::npos;
  const std::string function = has_class ? test.substr(dot + 1) : test;
  return text.find("def " + function + "(") != std::string::npos &&
         (!has_class || text.find("class " + test.substr(0, dot) + "(") != std::string::npos);
}

constexpr std::string_view kPage = "docs/bug_catalogue.md";
constexpr int kRows = 80;

// Folders of programs that run against third-party software, and of load tests that check
// durations.
constexpr std::string_view kMayTimeOut[] = {"benchmarks/", "tests/clients/", "tests/sanitizers/",
                                            "tests/soak/"};

}  // namespace

Violations CheckRandomStreamsHaveOneReader(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path) || IsTest(path)) continue;
    const std::string code = CodeOnly(text);
    const std::vector<std::string_view> lines = Lines(code);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const Reader& reader : Readers()) {
        const bool may = std::any_of(
            reader.allowed.begin(), reader.allowed.end(),
            [&path = path](std::string_view beginning) { return path.starts_with(beginning); });
        if (!may && HasWord(lines[i], reader.word)) {
          violations.push_back(At(path, i + 1, reader.rule));
        }
      }
    }
  }
  return violations;
}

Violations CheckBugCatalogue(const Files& files) {
  const auto page = files.find(std::string(kPage));
  if (page == files.end()) return {At(kPage, 1, "the page is missing")};
  static const std::regex row_start(R"(^\|\s*(\d+)\s*\|)");
  static const std::regex named(R"(`([\w/]+_(?:test\.cc|test\.py|cases\.py)): (\w+(?:\.\w+)?)`)");
  Violations violations;
  std::set<int> rows;
  std::set<std::string> mentioned;
  const std::vector<std::string_view> lines = Lines(page->second);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string line(lines[i]);
    bool names_tests = false;
    for (std::sregex_iterator it(line.begin(), line.end(), named), end; it != end; ++it) {
      const std::string path = (*it)[1].str();
      const std::string test = (*it)[2].str();
      names_tests = true;
      mentioned.insert(test);
      const auto file = files.find(path);
      const bool has_test =
          file != files.end() && (path.ends_with(".py") ? Defines(file->second, test)
                                                        : TestsIn(file->second).contains(test));
      if (!has_test) {
        violations.push_back(At(kPage, i + 1, path + " has no test " + test));
      }
    }
    std::smatch row;
    if (!std::regex_search(line, row, row_start)) continue;
    rows.insert(std::stoi(row[1].str()));
    if (!names_tests && line.find("waits for") == line.npos) {
      violations.push_back(At(kPage, i + 1, "names no test and does not say what it waits for"));
    }
  }
  for (int row = 1; row <= kRows; ++row) {
    if (!rows.contains(row)) {
      violations.push_back(At(kPage, 1, "has no row " + std::to_string(row)));
    }
  }
  for (const auto& [path, text] : files) {
    if (!IsCpp(path) || !IsTest(path)) continue;
    for (const std::string& test : TestsIn(text)) {
      if (test.starts_with("KnownFaults.") && !mentioned.contains(test)) {
        violations.push_back(At(path, 1, test + " is not named in " + std::string(kPage)));
      }
    }
  }
  return violations;
}

Violations CheckTestsNeverGiveUp(const Files& files) {
  static const std::regex cpp(
      R"(\b(SO_RCVTIMEO|SO_SNDTIMEO|\w+WithTimeout|wait_for|wait_until)\b)");
  static const std::regex python(R"(\b(settimeout\(|timeout=\d))");
  Violations violations;
  for (const auto& [path, text] : files) {
    const bool may_give_up =
        std::any_of(std::begin(kMayTimeOut), std::end(kMayTimeOut),
                    [&path = path](std::string_view folder) { return path.starts_with(folder); });
    if (may_give_up) continue;
    const bool is_bound = IsTest(path);
    const bool is_python =
        path.ends_with(".py") && (path.starts_with("tests/") || path.starts_with("python/tests/"));
    if (!is_python && !(is_bound && IsCpp(path))) continue;
    const std::string code = is_python ? text : CodeOnly(text);
    const std::vector<std::string_view> lines = Lines(code);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string line(lines[i]);
      std::smatch found;
      if (!std::regex_search(line, found, is_python ? python : cpp)) continue;
      violations.push_back(
          At(path, i + 1, found[1].str() + ": a test waits as long as a busy machine takes"));
    }
  }
  return violations;
}

Violations CheckHostedLanes(const Files& files) {
  const auto run = files.find(".ci/run");
  if (run == files.end()) return {};
  std::vector<std::string_view> lanes;
  for (std::string_view line : Lines(run->second)) {
    if (line.starts_with("lane ")) lanes.push_back(line.substr(5));
  }
  std::vector<std::string_view> hosted;
  bool is_in_list = false;
  const auto workflow = files.find(std::string(kHostedWorkflow));
  if (workflow != files.end()) {
    for (std::string_view line : Lines(workflow->second)) {
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      if (is_in_list && line.starts_with("- ")) {
        hosted.push_back(line.substr(2));
      } else {
        is_in_list = line == "lane:";
      }
    }
  }
  if (hosted == lanes) return {};
  return {At(kHostedWorkflow, 1, "its lanes differ from those of .ci/run")};
}

}  // namespace tandem::tidy
