#include "tests/tidy/text_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <regex>
#include <string>

#include "tests/tidy/folder_rules.h"

namespace tandem::tidy {
namespace {

constexpr size_t kMaxColumns = 100;
constexpr size_t kMaxLines = 600;

// Words that this file forbids are written in two parts, so that it follows its own rules.
constexpr std::array<std::string_view, 3> kNotes = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "XX"
    "X"};

constexpr std::array<std::string_view, 3> kMachinePaths = {
    "/wo"
    "rk/",
    "/ro"
    "ot/",
    "/ho"
    "me/"};

constexpr std::array<std::string_view, 9> kRegistries = {
    "pypi"
    ".org",
    "python"
    "hosted.org",
    "npm"
    "js.org",
    "npm"
    "js.com",
    "deb.deb"
    "ian.org",
    "archive.ub"
    "untu.com",
    "security.deb"
    "ian.org",
    "ana"
    "conda.org",
    "crates"
    ".io"};

constexpr std::array<std::string_view, 14> kDeviceMacros = {
    "__AVX", "__SSE",     "__FMA",  "__F16C", "__BMI",  "__AMX",  "__x86_64",
    "__ARM", "__aarch64", "__i386", "_M_X64", "__CUDA", "__NVCC", "TANDEM_CUDA"};

constexpr std::array<std::string_view, 11> kPrinting = {"printf", "fprintf", "vprintf", "vfprintf",
                                                        "puts",   "fputs",   "putchar", "perror",
                                                        "cout",   "cerr",    "clog"};

constexpr std::array<std::string_view, 9> kOtherGenerators = {
    "mt19937", "mt19937_64", "default_random_engine", "minstd_rand", "rand",
    "srand",   "drand48",    "random_shuffle",        "ranlux48"};

constexpr std::array<std::string_view, 1> kEntropy = {"random_device"};

constexpr std::array<std::string_view, 2> kPhiloxConstants = {
    "d2511"
    "f53",
    "cd9e8"
    "d57"};

constexpr std::array<std::string_view, 8> kTimeOfDay = {
    "absl::Now",    "GetCurrentTimeNanos", "system_clock", "high_resolution_clock",
    "gettimeofday", "CLOCK_REALTIME",      "std::time",    "time(nullptr)"};

// Files that make time stamps for people, such as the creation time of an answer, or that give a
// model the date.
constexpr std::array<std::string_view, 10> kTimeStampFiles = {
    "tools/kv_store_listing.cc", "kvcache/store/lmdb_store.cc",    "server/api/api_request_test.cc",
    "examples/chat.cc",          "server/api/openapi_test.cc",     "server/api/service.cc",
    "tools/conversation.cc",     "kvcache/events/cache_events.cc", "tools/bench/lab_command.cc",
    "draft/draft_text_store.cc"};

bool IsLibrary(std::string_view path) {
  const std::string_view folder = TopFolder(path);
  return IsInChain(folder) && folder != "tools" && IsCpp(path) && !IsTest(path);
}

// Returns a violation for each line of code that contains one of `words`, in the C++ files that
// `wanted` selects.
template <typename Words>
Violations FindWords(const Files& files, const std::function<bool(std::string_view)>& wanted,
                     const Words& words, std::string_view message) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path) || !wanted(path)) continue;
    ForEachLine(CodeOnly(text), [&, &path = path](size_t line, std::string_view code) {
      for (std::string_view word : words) {
        if (!HasWord(code, word)) continue;
        violations.push_back(At(path, line, std::string(word) + ": " + std::string(message)));
      }
    });
  }
  return violations;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string GuardOf(std::string_view path) {
  std::string guard = "TANDEM_";
  for (char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    guard += std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return guard + "_";
}

bool IsCondition(std::string_view code) {
  const size_t hash = code.find_first_not_of(" \t");
  if (hash == code.npos || code[hash] != '#') return false;
  const size_t word = std::min(code.find_first_not_of(" \t", hash + 1), code.size());
  return code.substr(word).starts_with("if") || code.substr(word).starts_with("elif");
}

}  // namespace

Violations CheckLayout(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!text.empty() && text.back() != '\n') {
      violations.push_back(At(path, Lines(text).size(), "no newline at the end of the file"));
    }
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      if (line.find('\t') != line.npos) violations.push_back(At(path, number, "has a tab"));
      if (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) {
        violations.push_back(At(path, number, "ends with a blank"));
      }
      const bool has_url = line.find("://") != line.npos;
      if (IsCpp(path) && Columns(line) > kMaxColumns && !has_url) {
        violations.push_back(At(path, number, "is longer than 100 columns"));
      }
    });
  }
  return violations;
}

Violations CheckFileLength(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    const size_t lines = Lines(text).size();
    if (path.ends_with(".md") || lines <= kMaxLines) continue;
    violations.push_back(At(path, lines, "more than 600 lines"));
  }
  return violations;
}

Violations CheckIncludeGuards(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsHeader(path)) continue;
    const std::string guard = GuardOf(path);
    std::vector<std::string_view> directives;
    const std::string code = CodeOnly(text);
    for (std::string_view line : Lines(code)) {
      if (line.starts_with("#")) directives.push_back(line);
    }
    const bool guarded = directives.size() >= 3 && directives[0] == "#ifndef " + guard &&
                         directives[1] == "#define " + guard &&
                         text.ends_with("#endif  // " + guard + "\n");
    if (!guarded) violations.push_back(At(path, 1, "the include guard is not " + guard));
  }
  return violations;
}

Violations CheckNoUsingNamespaceInHeaders(const Files& files) {
  return FindWords(files, IsHeader, std::array<std::string_view, 1>{"using namespace"},
                   "a header would decide this for every file that includes it");
}

Violations CheckNoDeviceMacros(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path)) continue;
    bool continued = false;
    ForEachLine(CodeOnly(text), [&, &path = path](size_t line, std::string_view code) {
      const bool condition = continued || IsCondition(code);
      continued = condition && code.ends_with("\\");
      if (!condition) return;
      for (std::string_view macro : kDeviceMacros) {
        if (code.find(macro) == code.npos) continue;
        violations.push_back(
            At(path, line, "asks for " + std::string(macro) + "...: CMake chooses files instead"));
      }
    });
  }
  return violations;
}

Violations CheckLibrariesDoNotPrint(const Files& files) {
  const auto may_not_print = [](std::string_view path) {
    return IsLibrary(path) && path != "base/check.h";
  };
  Violations violations = FindWords(files, may_not_print, kPrinting, "libraries never print");
  for (const auto& [path, text] : files) {
    if (!IsLibrary(path)) continue;
    for (const Include& include : Includes(text)) {
      if (include.path != "iostream") continue;
      violations.push_back(At(path, include.line, "includes <iostream>: libraries never print"));
    }
  }
  return violations;
}

Violations CheckNoThrow(const Files& files) {
  return FindWords(
      files, [](std::string_view) { return true; }, std::array<std::string_view, 1>{"throw"},
      "errors are absl::Status or TANDEM_CHECK");
}

Violations CheckRandomNumbersArePassedIn(const Files& files) {
  const auto is_bound = [](std::string_view path) {
    return !IsTest(path) && !path.starts_with("base/philox");
  };
  const auto is_bound_to_its_seed = [&is_bound](std::string_view path) {
    return is_bound(path) && path != "engine/new_session.cc" && TopFolder(path) != "tools";
  };
  Violations violations =
      FindWords(files, is_bound, kOtherGenerators, "random numbers come from base/philox.h");
  const Violations entropy =
      FindWords(files, is_bound_to_its_seed, kEntropy, "seeds are passed in");
  violations.insert(violations.end(), entropy.begin(), entropy.end());
  for (const auto& [path, text] : files) {
    if (!IsCpp(path) || path.starts_with("base/philox")) continue;
    ForEachLine(CodeOnly(text), [&, &path = path](size_t line, std::string_view code) {
      for (std::string_view constant : kPhiloxConstants) {
        if (LowerCase(code).find(constant) == std::string::npos) continue;
        violations.push_back(At(path, line, "Philox is implemented in base/philox.cc only"));
      }
    });
  }
  return violations;
}

Violations CheckOnlyStampsTellTheTimeOfDay(const Files& files) {
  const auto may_not = [](std::string_view path) {
    return std::find(kTimeStampFiles.begin(), kTimeStampFiles.end(), path) == kTimeStampFiles.end();
  };
  return FindWords(files, may_not, kTimeOfDay, "durations and deadlines use base/instant.h");
}

Violations CheckWakingStoresAreSequential(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path)) continue;
    std::string before;
    ForEachLine(CodeOnly(text), [&, &path = path](size_t line, std::string_view code) {
      const bool wakes = code.find("notify_") != code.npos;
      const bool is_late = before.find("store(") != before.npos &&
                           before.find("memory_order_seq_cst") == before.npos;
      if (wakes && is_late) {
        violations.push_back(At(path, line, "wakes after a store that is not seq_cst"));
      }
      before = code;
    });
  }
  return violations;
}

Violations CheckNoNotes(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      for (std::string_view note : kNotes) {
        if (HasWord(line, note)) violations.push_back(At(path, number, "a note about later work"));
      }
    });
  }
  return violations;
}

Violations CheckGlossary(const Files& files) {
  constexpr std::string_view kGlossary = "docs/glossary.md";
  Violations violations;
  const auto glossary = files.find(std::string(kGlossary));
  if (glossary == files.end()) return violations;
  std::vector<std::string_view> words;
  ForEachLine(glossary->second, [&](size_t, std::string_view line) {
    if (!line.starts_with("|") || !line.ends_with("|") || line.size() < 2) return;
    line.remove_suffix(1);
    line.remove_prefix(line.rfind('|') + 1);
    for (size_t open = line.find('`'); open != line.npos; open = line.find('`', open)) {
      const size_t close = line.find('`', open + 1);
      if (close == line.npos) return;
      words.push_back(line.substr(open + 1, close - open - 1));
      open = close + 1;
    }
  });
  for (const auto& [path, text] : files) {
    if (path == kGlossary || (!IsCpp(path) && !path.ends_with(".md"))) continue;
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      for (const std::string_view word : words) {
        if (!HasWord(line, word)) continue;
        violations.push_back(
            At(path, number, std::string(word) + ": the glossary has another word for it"));
      }
    });
  }
  return violations;
}

Violations CheckNoMachinePathsOrRegistries(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      for (std::string_view machine_path : kMachinePaths) {
        if (line.find(machine_path) == line.npos) continue;
        violations.push_back(At(path, number, "a path of a particular machine"));
      }
      for (std::string_view host : kRegistries) {
        if (line.find(host) == line.npos) continue;
        violations.push_back(At(path, number, "the host of a package registry"));
      }
    });
  }
  return violations;
}

Violations CheckPythonIsIsolated(const Files& files) {
  static const std::regex& start =
      *new std::regex(R"re((python3?|executable)"?,? +"?-[cm]\b)re", std::regex::optimize);
  Violations violations;
  for (const auto& [path, text] : files) {
    const bool is_script = path == "dev" || path.ends_with(".sh") || path.ends_with(".py") ||
                           path.ends_with(".cmake") || IsCpp(path);
    if (!is_script || path.ends_with("_test.cc") || path.find("tests/") != path.npos) continue;
    ForEachLine(text, [&, &path = path](size_t number, std::string_view line) {
      const bool is_start = std::regex_search(line.begin(), line.end(), start);
      const bool is_said = line.find("`python") != line.npos || line.find("sys.exit(") != line.npos;
      if (is_start && !is_said) violations.push_back(At(path, number, "starts Python without -I"));
    });
  }
  return violations;
}

}  // namespace tandem::tidy
