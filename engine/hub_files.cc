#include "engine/hub_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/format.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr absl::string_view kMain = "main";
constexpr absl::string_view kGguf = ".gguf";
constexpr absl::string_view kSafetensors = ".safetensors";

// The files of a folder next to its weights. Weights are not looked for in subfolders.
constexpr absl::string_view kSmallFiles[] = {"config.json",
                                             "generation_config.json",
                                             "hf_quant_config.json",
                                             "quantize_config.json",
                                             "tokenizer.json",
                                             "tokenizer.model",
                                             "tokenizer_config.json",
                                             "special_tokens_map.json",
                                             "added_tokens.json",
                                             "vocab.json",
                                             "merges.txt",
                                             "chat_template.jinja",
                                             "chat_template.json",
                                             "additional_chat_templates/tool_use.jinja"};

// "ORG" or "NAME", as the hub allows them.
bool IsHubWord(absl::string_view word) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  const auto is_end = [](char c) { return c == '-' || c == '.'; };
  return !word.empty() && word.size() <= 96 && absl::c_all_of(word, is_allowed) &&
         !is_end(word.front()) && !is_end(word.back()) && !absl::StrContains(word, "--") &&
         !absl::StrContains(word, "..");
}

// Whether a path stays in its folder and can be shown.
bool IsRelative(absl::string_view path) {
  return absl::c_none_of(path, [](char c) { return c == '\\' || absl::ascii_iscntrl(c); }) &&
         absl::c_none_of(absl::StrSplit(path, '/'), [](absl::string_view part) {
           return part.empty() || part == "." || part == "..";
         });
}

// A file, or a part of a split one: "x-00002-of-00003".
struct Stem {
  std::string name;  // "x"
  int num_parts = 1;

  static Stem Of(absl::string_view text) {
    constexpr size_t kTail = sizeof("-00001-of-00003") - 1;
    Stem stem{std::string(text)};
    if (text.size() <= kTail) return stem;
    const absl::string_view tail = text.substr(text.size() - kTail);
    int part = 0;
    if (!absl::SimpleAtoi(tail.substr(1, 5), &part) ||
        !absl::SimpleAtoi(tail.substr(10), &stem.num_parts) ||
        tail != Format("-%05d-of-%05d", part, stem.num_parts)) {
      return {std::string(text)};
    }
    stem.name.resize(text.size() - kTail);
    return stem;
  }
};

// Files by their stems. A stem has the parts of one number of parts.
struct Group {
  size_t num_parts = 1;
  std::vector<HubFile> files;

  bool is_complete() const { return files.size() == num_parts; }
};
using Groups = std::map<std::string, Group>;

void AddTo(Groups* groups, const HubFile& file, absl::string_view suffix) {
  const Stem stem = Stem::Of(absl::StripSuffix(file.name, suffix));
  Group& group = (*groups)[stem.name];
  group.num_parts = static_cast<size_t>(std::max(1, stem.num_parts));
  group.files.push_back(file);
}

// Whether `choice` is in `name`, in any case and with no letter or digit next to it.
bool HasWords(absl::string_view name, absl::string_view choice) {
  const std::string text = absl::AsciiStrToLower(name);
  const std::string words = absl::AsciiStrToLower(choice);
  const auto is_alnum = [&](size_t i) {
    return i < text.size() && (absl::ascii_isalnum(text[i]) || text[i] == '_');
  };
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    // An underscore joins the words of a format, Q4_K_M, but only a letter or digit those before.
    const bool begins = at == 0 || !absl::ascii_isalnum(text[at - 1]);
    if (begins && !is_alnum(at + words.size())) return true;
  }
  return false;
}

// "Q4_K_M (4.37 GB), Q8_0 (8.1 GB)": without what all names begin with.
std::string ListOf(const Groups& groups) {
  std::string common = groups.begin()->first;
  for (const auto& [stem, group] : groups) {
    const auto end = std::mismatch(common.begin(), common.end(), stem.begin(), stem.end()).first;
    common.erase(end, common.end());
  }
  const size_t cut = groups.size() == 1 ? std::string::npos : common.find_last_of("-./");
  const size_t begin = cut == std::string::npos ? 0 : cut + 1;
  return absl::StrJoin(groups, ", ", [&](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first.substr(begin), " (",
                    DecimalSize(HubModel{.path = "", .files = entry.second.files}.Bytes()), ")");
  });
}

absl::Status Incomplete(const HubName& name, const std::string& stem, const Group& group) {
  return absl::NotFoundError(absl::StrCat(name.Text(), ": ", stem, ": found ", group.files.size(),
                                          " parts, allowed: all ", group.num_parts));
}

// The folder's own model; no files if it has none.
absl::StatusOr<HubModel> ChooseFolder(const HubName& name, const std::vector<HubFile>& files) {
  HubModel model;
  const auto add = [&](absl::string_view file_name) {
    const auto file = absl::c_find_if(files, [&](const auto& f) { return f.name == file_name; });
    if (file != files.end()) model.files.push_back(*file);
    return file != files.end();
  };
  if (!add(kSmallFiles[0])) return HubModel();
  if (!add("model.safetensors")) {
    Groups groups;
    if (add("model.safetensors.index.json")) {
      for (const HubFile& file : files) {
        const bool is_shard = absl::EndsWith(file.name, kSafetensors) &&
                              !absl::StrContains(file.name, '/') &&
                              !absl::StartsWith(file.name, "consolidated");
        if (is_shard) AddTo(&groups, file, kSafetensors);
      }
    }
    for (const auto& [stem, group] : groups) {
      if (!group.is_complete()) return Incomplete(name, stem, group);
      absl::c_copy(group.files, std::back_inserter(model.files));
    }
    // Draft heads are published so.
    if (groups.empty() && !add("pytorch_model.bin")) return HubModel();
  }
  for (const absl::string_view small : absl::MakeConstSpan(kSmallFiles).subspan(1)) add(small);
  return model;
}

}  // namespace

std::optional<HubName> HubName::Parse(absl::string_view text) {
  HubName name;
  const std::pair<absl::string_view, absl::string_view> file =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::pair<absl::string_view, absl::string_view> place =
      absl::StrSplit(file.first, absl::MaxSplits('@', 1));
  name.repository = std::string(place.first);
  name.choice = std::string(file.second);
  if (absl::StrContains(file.first, '@')) name.revision = std::string(place.second);
  const std::vector<absl::string_view> words = absl::StrSplit(name.repository, '/');
  const bool is_path =
      absl::EndsWith(name.repository, kGguf) || absl::EndsWith(name.repository, ".json");
  if (is_path || words.size() != 2 || !absl::c_all_of(words, IsHubWord)) return std::nullopt;
  if (!IsRelative(name.revision)) return std::nullopt;
  if (absl::StrContains(text, ':') && !IsRelative(name.choice)) return std::nullopt;
  return name;
}

std::string HubName::Text() const {
  return absl::StrCat(repository, revision == kMain ? "" : absl::StrCat("@", revision),
                      choice.empty() ? "" : absl::StrCat(":", choice));
}

int64_t HubModel::Bytes() const {
  return absl::c_accumulate(files, int64_t{0},
                            [](int64_t sum, const HubFile& file) { return sum + file.bytes; });
}

absl::StatusOr<HubModel> ChooseModel(const HubName& name, const std::vector<HubFile>& files) {
  Groups all;
  for (const HubFile& file : files) {
    if (!IsRelative(file.name)) {
      return absl::InvalidArgumentError(absl::StrCat(name.Text(), ": found a file \"",
                                                     absl::Utf8SafeCHexEscape(file.name),
                                                     "\", allowed: a path"));
    }
    const std::string lower = absl::AsciiStrToLower(file.name);
    // Parts of a model that reads images, and notes on how a file was quantised.
    const bool is_other =
        absl::StrContains(lower, "mmproj") || absl::EndsWith(lower, "imatrix.gguf");
    if (absl::EndsWith(file.name, kGguf) && !is_other) AddTo(&all, file, kGguf);
  }
  if (name.choice.empty()) {
    ASSIGN_OR_RETURN(HubModel folder, ChooseFolder(name, files));
    if (!folder.files.empty()) return folder;
  }
  if (all.empty()) {
    return absl::NotFoundError(absl::StrCat(name.Text(), ": has no ",
                                            name.choice.empty() ? "model.safetensors and no " : "",
                                            "GGUF file that Tandem could read"));
  }
  Groups fitting;
  for (const auto& [stem, group] : all) {
    const bool is_it =
        absl::c_any_of(group.files, [&](const HubFile& file) { return file.name == name.choice; });
    if (is_it) {
      fitting = {{stem, group}};
      break;
    }
    if (name.choice.empty() || HasWords(stem, name.choice)) fitting.insert({stem, group});
  }
  if (fitting.empty()) {
    return absl::NotFoundError(
        absl::StrCat(name.Text(), ": \"", name.choice,
                     "\" is in the name of no GGUF file, found: ", ListOf(all)));
  }
  if (fitting.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name.Text(), ": has several GGUF files, choose one as in ", name.repository,
                     ":Q4_K_M, found: ", ListOf(fitting)));
  }
  auto& [stem, group] = *fitting.begin();
  if (!group.is_complete()) return Incomplete(name, stem, group);
  absl::c_sort(group.files, [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string path = group.files.front().name;
  return HubModel{.path = std::move(path), .files = std::move(group.files)};
}

}  // namespace tandem
