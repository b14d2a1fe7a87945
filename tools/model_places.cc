#include "tools/model_places.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kStoryTarget[] = "storyteller-7m";
constexpr char kStoryDraft[] = "storyteller-1m";

// A folder of shipped models.
struct Models {
  fs::path path;
  bool is_checkout = false;
};

// The one that has this model, at or above the program's own place: the build tree lies in the
// checkout; an installed program has share/tandem beside bin.
std::optional<Models> ModelsWith(const std::string& name) {
  std::error_code error;
  for (fs::path place = fs::read_symlink("/proc/self/exe", error).parent_path(); !place.empty();
       place = place.parent_path()) {
    for (const bool is_checkout : {true, false}) {
      Models models{place / (is_checkout ? "models" : "share/tandem/models"), is_checkout};
      if (fs::is_directory(models.path / name, error)) return models;
    }
    if (place == place.parent_path()) break;
  }
  return std::nullopt;
}

std::string FromHere(const fs::path& path) {
  std::error_code error;
  const fs::path near = fs::proximate(path, error);
  return (error ? path : near).string();
}

}  // namespace

std::string ShippedModel(const std::string& name) {
  const std::optional<Models> models = ModelsWith(name);
  return models.has_value() ? FromHere(models->path / name) : absl::StrCat("models/", name);
}

absl::StatusOr<std::string> ModelCache() {
  if (const std::string given = EnvironmentVariable("TANDEM_MODEL_CACHE"); !given.empty()) {
    if (given != "none") return given;
    return absl::FailedPreconditionError("TANDEM_MODEL_CACHE: found none, allowed: a folder");
  }
  if (const auto models = ModelsWith(kStoryTarget); models.has_value() && models->is_checkout) {
    return FromHere(models->path / "cache");
  }
  if (const std::string cache = EnvironmentVariable("XDG_CACHE_HOME"); !cache.empty()) {
    return (fs::path(cache) / "tandem" / "models").string();
  }
  if (const std::string home = EnvironmentVariable("HOME"); !home.empty()) {
    return (fs::path(home) / ".cache" / "tandem" / "models").string();
  }
  return absl::FailedPreconditionError(
      "fetched models: found no place for them, allowed: one that TANDEM_MODEL_CACHE, "
      "XDG_CACHE_HOME or HOME names");
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

absl::StatusOr<std::string> ModelNamed(const std::string& path) {
  std::error_code error;
  const KnownModel* const model = FindKnownModel(path);
  if (model == nullptr || fs::exists(path, error)) return path;
  if (std::optional<std::string> folder = FetchedModel(*model)) return *std::move(folder);
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": was not fetched yet, and no such folder is here: `tandem fetch ", path, "`"));
}

std::optional<PairPaths> RealPair() {
  std::error_code error;
  for (const KnownModel& model : KnownModels()) {
    std::optional<std::string> target = FetchedModel(model);
    const std::string draft = ShippedModel(model.draft);
    if (target.has_value() && fs::is_directory(draft, error)) {
      return PairPaths{*target, draft, model.draft_head_tokens};
    }
  }
  return std::nullopt;
}

PairPaths StoryPair() { return {ShippedModel(kStoryTarget), ShippedModel(kStoryDraft), 0}; }

}  // namespace tandem
