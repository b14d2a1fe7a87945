#include "engine/known_drafts.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/hub_files.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/model_config.h"
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tandem/tokenizer.h"
#include "text/end_tokens.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Kind = KnownDraft::Kind;

constexpr char kOwn[] = "docs/benchmarks/real_pairs.md";
constexpr char kPard[] = "https://github.com/AMD-AGI/PARD";

// More specific targets come first. Figures are as published, for other engines unless they are in
// docs/, which also names their conditions (docs/drafting/which_draft.md).
constexpr KnownDraft kDrafts[] = {
    {.target = kStoryPair.target,
     .draft = kStoryPair.draft,
     .millions = 0.8,
     .source = "docs/benchmarks/speculation.md"},
    {.target = "smollm2*135m*",
     .draft = "smollm2-draft",
     .kind = Kind::kHead,
     .millions = 7,
     .accepted = 0.48,
     .source = kOwn},
    {.target = "smollm2*",
     .draft = "HuggingFaceTB/SmolLM2-135M-Instruct",
     .millions = 106,
     .source = "the smallest of its family"},

    {.target = "qwen2.5-coder-32b*",
     .draft = "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF:Q4_0",
     .millions = 2770,
     .accepted = 0.34,
     .draft_tokens = 16,
     .source = "https://github.com/ggml-org/llama.cpp/pull/10455"},
    {.target = "qwen2.5-coder-*",
     .draft = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M",
     .millions = 358,
     .accepted = 0.60,
     .source = kOwn},
    {.target = "qwen2.5-*",
     .draft = "amd/PARD-Qwen2.5-0.5B",
     .kind = Kind::kParallel,
     .millions = 358,
     .source = kPard},
    {.target = "qwen2.5-*",
     .draft = "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
     .millions = 358,
     .source = "the smallest of its family"},

    {.target = "qwen3-8b*",
     .draft = "AngelSlim/Qwen3-8B_eagle3",
     .kind = Kind::kHead,
     .millions = 270,
     .source = kPard},
    {.target = "qwen3-32b*",
     .draft = "RedHatAI/Qwen3-32B-speculator.eagle3",
     .kind = Kind::kHead,
     .millions = 620,
     .source = "https://huggingface.co/RedHatAI/Qwen3-32B-speculator.eagle3"},
    {.target = "qwen3-*",
     .draft = "amd/PARD-Qwen3-0.6B",
     .kind = Kind::kParallel,
     .millions = 440,
     .source = kPard},
    {.target = "qwen3-*",
     .draft = "Qwen/Qwen3-0.6B-GGUF:Q8_0",
     .millions = 440,
     .accepted = 0.57,
     .source = "https://github.com/ggml-org/llama.cpp/pull/14132"},

    {.target = "*llama-3.1-8b*",
     .draft = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
     .kind = Kind::kHead,
     .millions = 290,
     .source = kPard},
    {.target = "*llama-3.3-70b*",
     .draft = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
     .kind = Kind::kHead,
     .millions = 1140,
     .source = kPard},
    {.target = "*llama-3*",
     .draft = "amd/PARD-Llama-3.2-1B",
     .kind = Kind::kParallel,
     .millions = 973,
     .source = kPard},
    {.target = "*llama-3*",
     .draft = "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
     .millions = 973,
     .accepted = 0.72,
     .draft_tokens = 5,
     .source = "https://github.com/ggml-org/llama.cpp/issues/5877"},

    {.target = "deepseek-r1-distill-qwen-*",
     .draft = "amd/PARD-DeepSeek-R1-Distill-Qwen-1.5B",
     .kind = Kind::kParallel,
     .millions = 1310,
     .source = kPard},

    {.target = "gemma-3-*",
     .draft = "unsloth/gemma-3-270m-it-GGUF:Q8_0",
     .millions = 100,
     .source = "https://www.reddit.com/r/LocalLLaMA/comments/1mqj87e/"},

    {.target = "mistral-small-3.1-*",
     .draft = "alamios/Mistral-Small-3.1-DRAFT-0.5B",
     .millions = 358,
     .accepted = 0.61,
     .source = "https://www.reddit.com/r/LocalLLaMA/comments/1jie6oo/"},
};

std::string Normal(std::string name) {
  name = absl::AsciiStrToLower(absl::StrReplaceAll(name, {{" ", "-"}, {"_", "-"}}));
  return absl::EndsWith(name, ".gguf") ? name.substr(0, name.size() - 5) : name;
}

// The name of a model without its organisation and choice: "qwen2.5-0.5b-instruct".
std::string BareName(absl::string_view model) {
  const std::optional<HubName> of_hub = HubName::Parse(model);
  std::string name = of_hub.has_value() ? of_hub->repository : std::string(model);
  name = Normal(name.substr(name.rfind('/') + 1));
  return absl::EndsWith(name, "-gguf") ? name.substr(0, name.size() - 5) : name;
}

// Whether one of a model's names is that of the draft, instructed or not.
bool IsDraft(const KnownDraft& draft, const std::vector<std::string>& names) {
  const std::string own = BareName(draft.draft);
  absl::string_view begin = own;
  if (!absl::ConsumeSuffix(&begin, "-instruct")) absl::ConsumeSuffix(&begin, "-it");
  return absl::c_any_of(names,
                        [&](const std::string& name) { return absl::StartsWith(name, begin); });
}

bool Matches(const char* pattern, const std::string& name) {
  return fnmatch(pattern, name.c_str(), 0) == 0;
}

}  // namespace

double KnownDraft::Acceptance(double otherwise) const {
  if (accepted == 0 || draft_tokens <= 1) return accepted == 0 ? otherwise : accepted;
  // Solves (a + a^2 + ... + a^k) / k = accepted.
  double low = 0;
  double high = 1;
  for (int i = 0; i < 50; ++i) {
    const double a = (low + high) / 2;
    double sum = 0;
    for (int k = 1; k <= draft_tokens; ++k) sum += std::pow(a, k);
    (sum < accepted * draft_tokens ? low : high) = a;
  }
  return low;
}

absl::Span<const KnownDraft> KnownDrafts() { return kDrafts; }

std::vector<const KnownDraft*> KnownDraftsFor(const std::vector<std::string>& names) {
  std::vector<const KnownDraft*> drafts;
  for (const KnownDraft& draft : kDrafts) {
    const bool fits = !IsDraft(draft, names) && absl::c_any_of(names, [&](const std::string& name) {
      return Matches(draft.target, name);
    });
    const bool is_there = absl::c_any_of(
        drafts, [&](const KnownDraft* d) { return std::string(d->draft) == draft.draft; });
    if (fits && !is_there) drafts.push_back(&draft);
  }
  return drafts;
}

std::vector<std::string> NamesOfModel(const std::string& typed, const std::string& path) {
  std::vector<std::string> names = {BareName(typed), Normal(fs::path(path).filename().string())};
  const absl::StatusOr<std::string> gguf = GgufIn(path);
  if (gguf.ok() && !gguf->empty()) {
    names.push_back(Normal(fs::path(*gguf).filename().string()));
    const absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(*gguf);
    const auto own = file.ok() ? (*file)->GetString("general.name") : file.status();
    if (own.ok()) names.push_back(Normal(std::string(*own)));
  }
  return names;
}

std::optional<std::string> FindDraft(const KnownDraft& draft, const std::string& target_path) {
  if (absl::StatusOr<std::string> path = ModelNamed(draft.draft); path.ok()) return *path;
  std::error_code error;
  const fs::path folder = fs::is_directory(target_path, error)
                              ? fs::path(target_path)
                              : fs::path(target_path).parent_path();
  std::optional<std::string> first;  // by name
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".gguf" || (first.has_value() && *first < path)) continue;
    if (IsDraft(draft, NamesOfModel(path, path))) first = path;
  }
  return first;
}

std::string ChooseKnownDraft(const std::string& typed_target, const std::string& target_path,
                             bool may_be_head) {
  std::string better;  // which is not here
  for (const KnownDraft* draft : KnownDraftsFor(NamesOfModel(typed_target, target_path))) {
    if (draft->kind == Kind::kHead && !may_be_head) continue;
    const std::optional<std::string> path = FindDraft(*draft, target_path);
    if (path.has_value()) {
      Log(LogLevel::kInfo,
          absl::StrCat(
              "draft=", *path, " reason=\"the best known draft that is here\"",
              better.empty() ? "" : absl::StrCat(" better=\"tandem fetch ", better, "\"")));
      return *path;
    }
    if (better.empty()) better = draft->draft;
  }
  Log(LogLevel::kInfo,
      absl::StrCat("draft=none reason=\"",
                   better.empty() ? "no draft is known for this target"
                                  : "the known drafts of this target are not here",
                   "\"",
                   better.empty() ? "" : absl::StrCat(" better=\"tandem fetch ", better, "\"")));
  return "";
}

// Counts tokens longer than a byte, because text consists of them. Compares with the smaller
// vocabulary, because common tokens are few: 3,900 of Qwen2's 151,643 cover 87 % of a simple text.
bool IsUsable(const VocabularyMap& vocabulary) {
  constexpr int kMinShare = 8;  // an eighth
  const VocabularyMap::Counts& counts = vocabulary.long_counts();
  return !vocabulary.pairs().empty() &&
         (counts.target == 0 || counts.paired * kMinShare > std::min(counts.target, counts.draft));
}

absl::StatusOr<VocabularyFit> CompareVocabularies(const std::string& target,
                                                  const std::string& draft) {
  ASSIGN_OR_RETURN(const ModelConfig target_config, ReadModelConfig(target));
  ASSIGN_OR_RETURN(const ModelConfig draft_config, ReadModelConfig(draft));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> of_target, Tokenizer::Load(target));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> of_draft, Tokenizer::Load(draft));
  const std::vector<TokenId> target_ends = EndTokensOf(target_config, *of_target);
  const std::vector<TokenId> draft_ends = EndTokensOf(draft_config, *of_draft);
  const Vocabulary a = {
      .tokenizer = of_target.get(), .size = target_config.vocab_size, .end_tokens = target_ends};
  const Vocabulary b = {
      .tokenizer = of_draft.get(), .size = draft_config.vocab_size, .end_tokens = draft_ends};
  if (VocabularyMap::HasSameIds(a, b)) return VocabularyFit{.is_same = true, .is_usable = true};
  const VocabularyMap map(a, b);
  return VocabularyFit{
      .is_usable = IsUsable(map), .paired = map.counts().paired, .target = map.counts().target};
}

}  // namespace tandem
