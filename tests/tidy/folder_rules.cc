#include "tests/tidy/folder_rules.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace tandem::tidy {
namespace {

constexpr std::array<std::string_view, 22> kChain = {"base",
                                                     "base/json",
                                                     "base/net",
                                                     "kernels",
                                                     "kvcache",
                                                     "kvcache/store",
                                                     "kvcache/transfer",
                                                     "kvcache/events",
                                                     "model/checkpoint",
                                                     "model/ranks",
                                                     "model",
                                                     "text",
                                                     "text/constraint",
                                                     "text/chat",
                                                     "draft",
                                                     "verify",
                                                     "engine",
                                                     "proof",
                                                     "proof/remote",
                                                     "server",
                                                     "tools",
                                                     "tools/bench"};

// Folders outside the chain, which can use all of it.
constexpr std::array<std::string_view, 3> kUsers = {"tests", "benchmarks", "examples"};

// The headers of include/tandem/, each with the folder whose place in the chain it has.
struct PublicHeader {
  std::string_view name;
  std::string_view folder;
};
constexpr PublicHeader kPublicHeaders[] = {{"types.h", "base"},
                                           {"field_error.h", "base"},
                                           {"parameter.h", "base"},
                                           {"json_value.h", "base/json"},
                                           {"number_formats.h", "kernels"},
                                           {"tokenizer.h", "text"},
                                           {"detokenizer.h", "text"},
                                           {"token_constraint.h", "model"},
                                           {"output_constraint.h", "text/constraint"},
                                           {"choice_law.h", "text/constraint"},
                                           {"answer_delta.h", "text/chat"},
                                           {"answer_reader.h", "text/chat"},
                                           {"chat_answer.h", "text/chat"},
                                           {"chat_input.h", "text/chat"},
                                           {"chat_template.h", "text/chat"},
                                           {"generic_tools.h", "text/chat"},
                                           {"json_types.h", "text/chat"},
                                           {"reasoning.h", "text/chat"},
                                           {"tool_calls.h", "text/chat"},
                                           {"tool_format.h", "text/chat"},
                                           {"logprobs.h", "model"},
                                           {"sampling_params.h", "model"},
                                           {"draft_source.h", "draft"},
                                           {"draft_texts.h", "draft"},
                                           {"draft_tokens.h", "draft"},
                                           {"drafter_kind.h", "draft"},
                                           {"acceptance_rule.h", "verify"},
                                           {"round_stats.h", "verify"},
                                           {"completion.h", "engine"},
                                           {"engine.h", "engine"},
                                           {"engine_load.h", "engine"},
                                           {"generation_id.h", "engine"},
                                           {"model_info.h", "engine"},
                                           {"engine_options.h", "engine"},
                                           {"engine_parameters.h", "engine"},
                                           {"known_models.h", "engine"},
                                           {"model_places.h", "engine"},
                                           {"owned_piece.h", "engine"},
                                           {"request.h", "engine"},
                                           {"kv_transfer.h", "kvcache/transfer"},
                                           {"lossless_proof.h", "proof"}};

constexpr std::string_view kPublicFolder = "include/tandem/";

constexpr std::array<std::string_view, 11> kLibraries = {
    "absl",  "spdlog",     "nlohmann",  "CLI",           "gtest", "gmock",
    "boost", "prometheus", "benchmark", "sentencepiece", "fuzzer"};

constexpr std::array<std::string_view, 7> kPlainViews = {
    "base/philox_rounds.h",  "kernels/exponential_series.h", "kernels/matrix.h",
    "kernels/paged_kv.h",    "kernels/row_sums.h",           "kernels/row_tasks.h",
    "tests/simt/sort_rows.h"};

constexpr std::array<std::string_view, 13> kStandardForCuda = {
    "algorithm", "array",  "cfloat",   "climits", "cmath",       "cstddef", "cstdint",
    "cstring",   "limits", "stdint.h", "tuple",   "type_traits", "utility"};

template <typename List>
bool Contains(const List& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Returns a folder's place in the chain, or -1 outside it.
int PlaceInChain(std::string_view folder) {
  const auto at = std::find(kChain.begin(), kChain.end(), folder);
  return at == kChain.end() ? -1 : static_cast<int>(at - kChain.begin());
}

// Returns a file's folder in the chain: the longest one that its path starts with, else the top
// folder. For a public header, given as "tandem/x.h" or by its path, this is the folder in
// kPublicHeaders.
std::string_view FolderInChain(std::string_view path) {
  std::string_view name = path;
  if (name.starts_with(kPublicFolder)) {
    name.remove_prefix(kPublicFolder.size());
  } else if (TopFolder(path) == "tandem") {
    name.remove_prefix(std::string_view("tandem/").size());
  } else {
    std::string_view folder = path.substr(0, path.rfind('/'));
    while (PlaceInChain(folder) < 0 && folder.find('/') != std::string_view::npos) {
      folder = folder.substr(0, folder.rfind('/'));
    }
    return PlaceInChain(folder) < 0 ? TopFolder(path) : folder;
  }
  for (const PublicHeader& header : kPublicHeaders) {
    if (header.name == name) return header.folder;
  }
  return "";
}

// Returns why `path` must not include `include`, or an empty string if the include is allowed.
std::string IncludeFault(std::string_view path, const Include& include) {
  const std::string_view target = TopFolder(include.path);
  const int target_place = PlaceInChain(FolderInChain(include.path));
  if (TopFolder(path) == "python" && !include.angle) {
    if (target == "python" || Contains(kLibraries, target)) return "";
    return "python/ includes <tandem/...> only, like every user of the library";
  }
  if (include.angle) {
    const bool is_of_a_user = TopFolder(path) == "python" || TopFolder(path) == "examples";
    if (target == "tandem" && is_of_a_user) return "";
    if (target_place < 0 && target != "tests") return "";
    return "our own headers are included with quotation marks";
  }
  if (Contains(kLibraries, target)) return "";
  if (target == "tests") return IsTest(path) ? "" : "only tests may include tests/";
  if (target_place < 0) return "starts with neither one of our folders nor a known library";
  if (path.starts_with(kPublicFolder) && target != "tandem") {
    return "public headers include public headers only";
  }
  const std::string_view own = FolderInChain(path);
  if (Contains(kUsers, own)) return "";
  if (PlaceInChain(own) < 0) return "this folder or header is not in the chain";
  if (target_place > PlaceInChain(own)) {
    return std::string(own) + "/ may use itself and folders to its left only";
  }
  return "";
}

bool IsStandardForCuda(const Include& include) {
  return include.path.starts_with("cuda") || include.path.starts_with("cub/") ||
         include.path.starts_with("cublas") || Contains(kStandardForCuda, include.path);
}

void AddIncludeViolation(const std::string& path, const Include& include, std::string_view why,
                         Violations* violations) {
  violations->push_back(
      At(path, include.line, "includes " + include.path + ": " + std::string(why)));
}

}  // namespace

bool IsInChain(std::string_view folder) { return PlaceInChain(folder) >= 0; }

Violations CheckFolderChain(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path)) continue;
    for (const Include& include : Includes(text)) {
      const std::string why = IncludeFault(path, include);
      if (!why.empty()) AddIncludeViolation(path, include, why, &violations);
    }
  }
  return violations;
}

Violations CheckVerifySeesProposalsOnly(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    // Tests of the judge can use a proposer.
    if (!IsCpp(path) || TopFolder(path) != "verify" || IsTest(path)) continue;
    for (const Include& include : Includes(text)) {
      if (TopFolder(include.path) != "draft" || include.path == "draft/proposal.h") {
        continue;
      }
      AddIncludeViolation(path, include,
                          "verify/ includes only the definition of a proposal from draft/",
                          &violations);
    }
  }
  return violations;
}

Violations CheckDevicesAreHidden(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!IsCpp(path)) continue;
    for (const Include& include : Includes(text)) {
      for (const std::string device : {"kernels/cpu/", "kernels/cuda/"}) {
        if (!include.path.starts_with(device) || path.starts_with(device)) continue;
        const bool other_device =
            path.starts_with("kernels/cpu/") || path.starts_with("kernels/cuda/");
        if (TopFolder(path) == "kernels" && !other_device) continue;
        // The twin of the device that runs its kernels on the host, and the program that measures
        // them.
        if (device == "kernels/cuda/" &&
            (path.starts_with("tests/simt/") || path.starts_with("tools/kernel_lab/"))) {
          continue;
        }
        AddIncludeViolation(path, include, device + " is private to kernels/", &violations);
      }
    }
  }
  return violations;
}

Violations CheckCudaIncludes(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    const bool plain_view = Contains(kPlainViews, path);
    if (!IsCuda(path) && !plain_view) continue;
    const std::string own_folder = path.substr(0, path.rfind('/') + 1);
    for (const Include& include : Includes(text)) {
      const bool allowed = include.angle
                               ? IsStandardForCuda(include)
                               : Contains(kPlainViews, include.path) ||
                                     (!plain_view && (include.path.starts_with("kernels/cuda/") ||
                                                      include.path.starts_with(own_folder)));
      if (allowed) continue;
      AddIncludeViolation(path, include,
                          "device code includes the toolkit, CUB, plain headers and "
                          "small standard headers only",
                          &violations);
    }
  }
  return violations;
}

Violations CheckCudaHasTwins(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    if (!path.starts_with("kernels/cuda/") || !path.ends_with(".cu")) continue;
    // Sources for one kernel each, such as attention_prompt.cu, share a twin.
    const std::string stem = std::filesystem::path(path).stem().string();
    const std::string twin = "kernels/cpu/" + stem.substr(0, stem.find('_'));
    const bool found = std::any_of(files.begin(), files.end(), [&twin](const auto& file) {
      return file.first.starts_with(twin + ".") || file.first.starts_with(twin + "_");
    });
    if (!found) violations.push_back(At(path, 1, "has no twin " + twin + ".cc or .h"));
  }
  return violations;
}

Violations CheckCMakeChain(const Files& files) {
  Violations violations;
  for (const auto& [path, text] : files) {
    const int own = PlaceInChain(FolderInChain(path));
    if (own < 0 || !path.ends_with("CMakeLists.txt")) continue;
    const std::vector<std::string_view> lines = Lines(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view code = lines[i].substr(0, lines[i].find('#'));
      for (size_t right = own + 1; right < kChain.size(); ++right) {
        std::string name(kChain[right]);
        std::replace(name.begin(), name.end(), '/', '_');
        if (!HasWord(code, "tandem_" + name) && !HasWord(code, "tandem::" + name)) continue;
        violations.push_back(
            At(path, i + 1, "links to " + std::string(kChain[right]) + "/, which is to the right"));
      }
    }
  }
  return violations;
}

namespace {

// Returns the words of `text` that `separators` part.
std::vector<std::string> Words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Returns the part of `text` from `begin`, which is left out, to `end`; empty if there is none.
std::string_view Between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + begin.size());
  return text.substr(0, text.find(end));
}

// Returns the folders that have a row "| `folder/` |", in their order, with their rows.
std::vector<std::pair<std::string, std::string_view>> FolderRows(std::string_view text) {
  std::vector<std::pair<std::string, std::string_view>> rows;
  for (const std::string_view line : Lines(text)) {
    const std::string_view folder = Between(line, "| `", "/` |");
    if (line.starts_with("| `") && Contains(kChain, folder)) rows.emplace_back(folder, line);
  }
  return rows;
}

}  // namespace

Violations CheckFolderMaps(const Files& files) {
  const std::vector<std::string> chain(kChain.begin(), kChain.end());
  Violations violations;
  const auto text_of = [&](const std::string& path) -> std::string_view {
    const auto at = files.find(path);
    return at == files.end() ? "" : std::string_view(at->second);
  };
  if (Words(Between(text_of("CMakeLists.txt"), "set(tandem_chain", ")"), " \n") != chain) {
    violations.push_back(At("CMakeLists.txt", 1, "tandem_chain differs from the chain of folders"));
  }
  for (const std::string path : {"docs/design.md", "CONTRIBUTING.md"}) {
    if (Words(Between(text_of(path), "```\nbase <", "```"), " <\n") !=
        std::vector<std::string>(chain.begin() + 1, chain.end())) {
      violations.push_back(At(path, 1, "its chain differs from the chain of folders"));
    }
  }
  std::vector<std::string> described;
  for (const auto& [folder, row] : FolderRows(text_of("docs/design.md")))
    described.push_back(folder);
  if (described != chain) {
    violations.push_back(At("docs/design.md", 1, "its rows differ from the chain of folders"));
  }
  const auto rooms = FolderRows(text_of("README.md"));
  size_t room = 0;
  for (const std::string_view folder : kChain) {
    if (folder.find('/') != std::string_view::npos) continue;
    bool is_complete = room < rooms.size() && rooms[room].first == folder;
    for (const std::string_view other : kChain) {
      if (!is_complete || TopFolder(other) != folder) continue;
      const std::string part = "`" + std::string(other.substr(folder.size() + 1)) + "/`";
      is_complete = rooms[room].second.find(part) != std::string_view::npos;
    }
    if (!is_complete) {
      violations.push_back(
          At("README.md", 1, "its map lacks " + std::string(folder) + "/ or a part of it"));
      break;
    }
    ++room;
  }
  return violations;
}

}  // namespace tandem::tidy
