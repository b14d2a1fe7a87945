#include "tandem/model_places.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/named_values.h"
#include "base/status_macros.h"
#include "engine/hub_cache.h"
#include "engine/known_drafts.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A folder of shipped models.
struct Models {
  fs::path path;
  bool is_checkout = false;
};

// The files next to which models may be installed: the one that contains this code, which may be
// Python's module, and the program.
std::vector<fs::path> OwnFiles() {
  std::vector<fs::path> files;
  std::error_code error;
  Dl_info info{};
  const bool is_known = dladdr(&kStoryPair, &info) != 0 && info.dli_fname != nullptr;
  // For a program this is the name by which it was called, which is useful only if it is a path.
  if (const fs::path file = is_known ? info.dli_fname : ""; file.has_parent_path()) {
    files.push_back(fs::absolute(file, error));
  }
  files.push_back(fs::read_symlink("/proc/self/exe", error));
  return files;
}

// Finds the folder of models that has this model, at or above the folder of one of OwnFiles(). The
// build tree is in the checkout; an installed program has share/tandem next to bin; Python's
// package has its own share/tandem.
std::optional<Models> ModelsWith(const std::string& name) {
  std::error_code error;
  for (const fs::path& file : OwnFiles()) {
    for (fs::path place = file.parent_path(); !place.empty(); place = place.parent_path()) {
      for (const bool is_checkout : {true, false}) {
        Models models{place / (is_checkout ? "models" : "share/tandem/models"), is_checkout};
        if (fs::is_directory(models.path / name, error)) return models;
      }
      if (place == place.parent_path()) break;
    }
  }
  return std::nullopt;
}

std::string FromHere(const fs::path& path) {
  std::error_code error;
  const fs::path near = fs::proximate(path, error);
  return (error ? path : near).string();
}

// Returns the folder of a shipped model; nothing if it does not exist.
std::optional<std::string> ShippedModel(const std::string& name) {
  const std::optional<Models> models = ModelsWith(name);
  if (!models.has_value()) return std::nullopt;
  return FromHere(models->path / name);
}

}  // namespace

absl::StatusOr<std::string> ModelCache() {
  if (const std::string given = EnvironmentVariable("TANDEM_MODEL_CACHE"); !given.empty()) {
    if (given != "none") return given;
    return absl::FailedPreconditionError("TANDEM_MODEL_CACHE: found none, allowed: a folder");
  }
  if (const auto models = ModelsWith(kStoryPair.target);
      models.has_value() && models->is_checkout) {
    return FromHere(models->path / "cache");
  }
  if (const std::string cache = EnvironmentVariable("XDG_CACHE_HOME"); !cache.empty()) {
    return (fs::path(cache) / "tandem" / "models").string();
  }
  if (const std::string home = EnvironmentVariable("HOME"); !home.empty()) {
    return (fs::path(home) / ".cache" / "tandem" / "models").string();
  }
  return absl::FailedPreconditionError(
      "fetched models: there is no folder for them; set TANDEM_MODEL_CACHE, XDG_CACHE_HOME or "
      "HOME");
}

absl::StatusOr<std::string> PackedWeightsFolder() {
  ASSIGN_OR_RETURN(const std::string cache, ModelCache());
  return (fs::path(cache) / "packed").string();
}

std::optional<std::string> FetchedModel(const KnownModel& model) {
  const absl::StatusOr<std::string> cache = ModelCache();
  if (!cache.ok()) return std::nullopt;
  const fs::path folder = fs::path(*cache) / model.name;
  std::error_code error;
  if (!fs::is_regular_file(folder / model.file, error)) return std::nullopt;
  return folder.string();
}

absl::StatusOr<std::string> ModelNamed(const std::string& name) {
  std::error_code error;
  if (name.empty() || fs::exists(name, error)) return name;
  const auto not_fetched = [&] {
    return absl::NotFoundError(absl::StrCat(
        name, ": was not fetched yet, and there is no folder of this name; run `tandem fetch ",
        name, "`"));
  };
  if (const KnownModel* const model = FindKnownModel(name); model != nullptr) {
    if (std::optional<std::string> folder = FetchedModel(*model)) return *std::move(folder);
    return not_fetched();
  }
  if (std::optional<std::string> folder = IsShipped(name) ? ShippedModel(name) : std::nullopt) {
    return *std::move(folder);
  }
  if (const std::optional<HubName> hub_name = HubName::Parse(name)) {
    absl::StatusOr<std::string> path = ModelInHubCache(*hub_name);
    return absl::IsNotFound(path.status()) ? not_fetched() : std::move(path);
  }
  std::vector<std::string> names = {kStoryPair.target, kStoryPair.draft};
  for (const KnownModel& model : KnownModels()) {
    names.insert(names.end(), {model.name, model.draft});
  }
  const std::string nearest = NearestName(name, names);
  return absl::NotFoundError(
      absl::StrCat(name, ": no such model, ",
                   nearest.empty() ? "" : absl::StrCat("did you mean ", nearest, "? "),
                   "allowed: a folder, a GGUF file, or a name (`tandem fetch`)"));
}

const KnownModel* KnownModelAt(const std::string& path) {
  for (const KnownModel& model : KnownModels()) {
    for (const fs::path& file : {fs::path(path), fs::path(path) / model.file}) {
      std::error_code error;
      const bool is_file = file.filename() == model.file && fs::is_regular_file(file, error);
      if (is_file && fs::file_size(file, error) == static_cast<uintmax_t>(model.bytes)) {
        return &model;
      }
    }
  }
  return nullptr;
}

std::optional<PairPaths> RealPair(int ranks) {
  for (const KnownModel& model : KnownModels()) {
    const std::optional<std::string> target = FetchedModel(model);
    const std::optional<std::string> draft = ShippedModel(model.draft);
    if (target.has_value() && draft.has_value()) {
      const bool runs = *FindKnownPair(model.name)->DraftFor(ranks) != '\0';
      return PairPaths{*target, runs ? *draft : ""};
    }
  }
  return std::nullopt;
}

PairPaths StoryPair() {
  const auto path_of = [](const std::string& name) {
    return ShippedModel(name).value_or(absl::StrCat("models/", name));
  };
  return {path_of(kStoryPair.target), path_of(kStoryPair.draft)};
}

absl::Status ResolveModels(EngineOptions* options) {
  ASSIGN_OR_RETURN(std::string target, ModelNamed(options->target));
  std::string draft = options->draft;
  const std::optional<KnownPair> pair =
      target == options->target ? std::nullopt : FindKnownPair(options->target);
  const bool has_use = options->drafter == DrafterKind::kAuto || HasModel(options->drafter);
  if (pair.has_value() && draft.empty() && has_use && ShippedModel(pair->draft).has_value()) {
    draft = pair->DraftFor(options->tensor_parallel);
  }
  if (draft == kAutoDraft) {
    draft = has_use ? ChooseKnownDraft(options->target, target, options->tensor_parallel == 1) : "";
  }
  if (!IsSelfDraft(draft)) {
    ASSIGN_OR_RETURN(draft, ModelNamed(draft));
  }
  options->target = std::move(target);
  options->draft = std::move(draft);
  return absl::OkStatus();
}

}  // namespace tandem
