#include "engine/hub_cache.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/environment.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"

namespace tandem {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "models--";

absl::StatusOr<std::string> HubHome() {
  if (std::string home = EnvironmentVariable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = EnvironmentVariable("XDG_CACHE_HOME"); !cache.empty()) {
    return (fs::path(cache) / "huggingface").string();
  }
  if (const std::string home = EnvironmentVariable("HOME"); !home.empty()) {
    return (fs::path(home) / ".cache" / "huggingface").string();
  }
  return absl::FailedPreconditionError(
      "models of a hub: there is no folder for them; set HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or "
      "HOME");
}

absl::StatusOr<std::string> HubCache() {
  if (std::string cache = EnvironmentVariable("HF_HUB_CACHE"); !cache.empty()) return cache;
  ASSIGN_OR_RETURN(const std::string home, HubHome());
  return (fs::path(home) / "hub").string();
}

std::string HubFolderName(const HubName& name) {
  return absl::StrCat(kPrefix, absl::StrReplaceAll(name.repository, {{"/", "--"}}));
}

bool IsCommit(const std::string& revision) {
  return revision.size() == 40 &&
         absl::c_all_of(revision, [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

namespace {

// The folder of a repository's files at a revision.
absl::StatusOr<fs::path> SnapshotOf(const HubName& name) {
  ASSIGN_OR_RETURN(const std::string cache, HubCache());
  const fs::path folder = fs::path(cache) / HubFolderName(name);
  std::string commit = name.revision;
  if (!IsCommit(commit)) {
    ASSIGN_OR_RETURN(const std::string ref, ReadFile((folder / "refs" / commit).string()));
    commit = std::string(absl::StripAsciiWhitespace(ref));
    if (!IsCommit(commit)) {
      return absl::NotFoundError(absl::StrCat(name.Text(), ": has no commit in the cache"));
    }
  }
  return folder / "snapshots" / commit;
}

// The files of a snapshot that are here.
std::vector<HubFile> FilesIn(const fs::path& snapshot) {
  std::vector<HubFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code missing;  // a link without its file
    const auto bytes = static_cast<int64_t>(fs::file_size(it->path(), missing));
    if (missing) continue;
    files.push_back({.name = fs::path(it->path()).lexically_relative(snapshot).generic_string(),
                     .bytes = bytes});
  }
  return files;
}

}  // namespace

absl::StatusOr<std::string> ModelInHubCache(const HubName& name) {
  ASSIGN_OR_RETURN(const fs::path snapshot, SnapshotOf(name));
  ASSIGN_OR_RETURN(const HubModel model, ChooseModel(name, FilesIn(snapshot)));
  return (model.path.empty() ? snapshot : snapshot / model.path).string();
}

std::vector<std::string> ModelsInHubCache() {
  std::vector<std::string> models;
  const absl::StatusOr<std::string> cache = HubCache();
  if (!cache.ok()) return models;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(*cache, error)) {
    absl::string_view folder = entry.path().filename().native();
    if (!absl::ConsumePrefix(&folder, kPrefix)) continue;
    HubName name{.repository = absl::StrReplaceAll(folder, {{"--", "/"}})};
    const absl::StatusOr<fs::path> snapshot = SnapshotOf(name);
    if (!snapshot.ok()) continue;
    if (absl::StatusOr<std::string> path = ModelInHubCache(name); path.ok()) {
      models.push_back(*path);
      continue;
    }
    for (const HubFile& file : FilesIn(*snapshot)) {  // several GGUF files, or parts of one
      name.choice = file.name;
      const absl::StatusOr<std::string> path = ModelInHubCache(name);
      if (path.ok() && absl::EndsWith(*path, file.name)) models.push_back(*path);
    }
  }
  absl::c_sort(models);
  return models;
}

}  // namespace tandem
