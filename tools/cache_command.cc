// tandem cache: lists and removes the files that the engine keeps for later starts.
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "engine/learned_speculation.h"
#include "model/packed_cache.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/kv_store_listing.h"
#include "tools/option_group.h"
#include "tools/report.h"
#include "tools/standard_streams.h"
#include "tools/table.h"

namespace tandem {
namespace {

constexpr char kPacked[] = "packed";
constexpr char kLearned[] = "learned";
constexpr char kModel[] = "model";
constexpr Limits kDays = {.low = 0, .high = 36500};
constexpr Limits kSize = {.low = 0, .is_size = true};

struct CacheFlags {
  std::string packed_weights;
  std::string kv_store;
  bool json = false;
  std::optional<std::string> prune;  // a size or an age
  bool packed = false;
  bool learned = false;
  std::optional<double> days;
  std::optional<int64_t> to_size;
  bool dry_run = false;

  bool prunes() const { return days.has_value() || to_size.has_value(); }
  absl::Status Check(const CLI::App& prune_command);
};

absl::Status CacheFlags::Check(const CLI::App& prune_command) {
  if (prune.has_value()) {
    if (prune_command.parsed()) return FieldError("--prune", "`tandem cache prune` has no --prune");
    std::string text = *prune;
    const bool is_age = absl::EndsWith(text, "d");
    if (is_age) text.pop_back();
    if (!(is_age ? SetFromText("", text, kDays, &days.emplace())
                 : SetFromText("", text, kSize, &to_size.emplace()))
             .ok()) {
      return FieldError("--prune", absl::StrCat("must be a size, such as 5G, or an age in days, "
                                                "such as 30d, got ",
                                                prune->empty() ? "nothing" : *prune));
    }
  }
  if (prune_command.parsed() && !prunes()) {
    return absl::InvalidArgumentError(
        "--older-than or --to-size is required; see `tandem cache prune --help`");
  }
  if (!prunes() || kv_store.empty()) return absl::OkStatus();
  if (!days.has_value()) {
    return FieldError("--kv-store", "needs --older-than, because its file never shrinks");
  }
  return dry_run ? FieldError("--kv-store", "cannot be combined with --dry-run") : absl::OkStatus();
}

struct Entry {
  const char* kind;
  CachedFile file;
};

void Append(const char* kind, std::vector<CachedFile> files, std::vector<Entry>* entries) {
  for (CachedFile& file : files) entries->push_back({kind, std::move(file)});
}

// The fetched models, whose last use is the last access that the file system has recorded.
std::vector<CachedFile> FetchedFiles() {
  std::vector<CachedFile> files;
  for (const KnownModel& model : KnownModels()) {
    const std::optional<std::string> folder = FetchedModel(model);
    const std::string path = absl::StrCat(folder.value_or(""), "/", model.file);
    struct stat info = {};
    if (!folder.has_value() || stat(path.c_str(), &info) != 0) continue;
    files.push_back({.path = path,
                     .bytes = info.st_size,
                     .last_used = absl::TimeFromTimespec(info.st_atim),
                     .model = model.name});
  }
  return files;
}

int64_t BytesOf(const std::vector<Entry>& entries) {
  int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.file.bytes;
  return bytes;
}

// "3 files, 271 MB"
std::string CountText(const std::vector<Entry>& entries) {
  return absl::StrCat(entries.size(), entries.size() == 1 ? " file, " : " files, ",
                      DecimalSize(BytesOf(entries)));
}

SortedJson ToJson(const std::vector<Entry>& entries) {
  SortedJson json = SortedJson::array();
  for (const auto& [kind, file] : entries) {
    json.push_back({{"kind", kind},
                    {"path", file.path},
                    {"bytes", file.bytes},
                    {"last_used", absl::FormatTime(file.last_used)},
                    {"model", file.model.empty() ? SortedJson() : SortedJson(file.model)},
                    {"unfinished", file.is_unfinished}});
  }
  return json;
}

absl::StatusOr<std::string> FolderOf(const CacheFlags& flags) {
  if (!flags.packed_weights.empty()) return flags.packed_weights;
  return PackedWeightsFolder();
}

absl::Status List(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(const std::string folder, FolderOf(flags));
  std::vector<Entry> entries;
  Append(kPacked, PackedFilesIn(folder), &entries);
  Append(kLearned, LearnedFilesIn(folder), &entries);
  Append(kModel, FetchedFiles(), &entries);
  std::vector<PoolInfo> pools;
  if (!flags.kv_store.empty()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<PageStore> store, OpenStore(flags.kv_store));
    ASSIGN_OR_RETURN(pools, store->Pools());
  }
  if (flags.json) {
    SortedJson json = {{"folder", folder}, {"files", ToJson(entries)}, {"bytes", BytesOf(entries)}};
    if (!flags.kv_store.empty()) json["pools"] = PoolsJson(pools);
    return Print(OneLine(json) + "\n");
  }
  std::string text;
  if (entries.empty()) {
    const absl::StatusOr<std::string> models = ModelCache();
    text =
        absl::StrCat("no files in ", folder,
                     models.ok() ? absl::StrCat(", and no fetched models in ", *models) : "", "\n");
  } else {
    Table table({"kind", "MB", "last used", "of", "path"});
    // A pair leaves two small files of learned state for each set of options: one row for all.
    std::vector<Entry> learned;
    absl::c_copy_if(entries, std::back_inserter(learned),
                    [](const Entry& entry) { return entry.kind == kLearned; });
    for (const auto& [kind, file] : entries) {
      if (kind == kLearned && learned.size() > 1) {
        if (file.path != learned.back().file.path) continue;  // the last used
        table.AddRow({kLearned, ThreeDigits(static_cast<double>(BytesOf(learned)) * 1e-6),
                      TimeText(file.last_used), absl::StrCat(learned.size(), " files"), folder});
        continue;
      }
      table.AddRow({file.is_unfinished ? "unfinished" : kind,
                    ThreeDigits(static_cast<double>(file.bytes) * 1e-6), TimeText(file.last_used),
                    file.model.empty() ? "-" : file.model, file.path});
    }
    text = absl::StrCat(table.ToText(), CountText(entries), "\n");
  }
  if (!flags.kv_store.empty()) text += PoolsText(pools);
  return Print(text);
}

struct Pruned {
  std::vector<Entry> removed;
  std::vector<Entry> kept;  // are being written
};

// Removes the files that are too old, and the least recently used until the others are small
// enough.
absl::StatusOr<Pruned> PruneFiles(const CacheFlags& flags, const std::string& folder) {
  const bool both = flags.packed == flags.learned;
  std::vector<Entry> entries;
  if (flags.packed || both) Append(kPacked, PackedFilesIn(folder), &entries);
  if (flags.learned || both) Append(kLearned, LearnedFilesIn(folder), &entries);
  absl::c_stable_sort(
      entries, [](const Entry& a, const Entry& b) { return a.file.last_used < b.file.last_used; });
  const absl::Time oldest = DaysAgo(flags.days.value_or(0));
  int64_t bytes = BytesOf(entries);
  Pruned pruned;
  for (Entry& entry : entries) {
    const bool is_old = flags.days.has_value() && entry.file.last_used < oldest;
    const bool is_too_much =
        flags.to_size.has_value() && (bytes > *flags.to_size || *flags.to_size == 0);
    if (!is_old && !is_too_much) continue;
    const absl::Status status = flags.dry_run ? absl::OkStatus() : RemoveCachedFile(entry.file);
    if (absl::IsUnavailable(status)) {
      pruned.kept.push_back(std::move(entry));
      continue;
    }
    RETURN_IF_ERROR(status);
    bytes -= entry.file.bytes;
    pruned.removed.push_back(std::move(entry));
  }
  return pruned;
}

absl::Status Prune(const CacheFlags& flags) {
  ASSIGN_OR_RETURN(const std::string folder, FolderOf(flags));
  ASSIGN_OR_RETURN(const Pruned pruned, PruneFiles(flags, folder));
  std::optional<int64_t> pages;
  if (!flags.kv_store.empty()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<PageStore> store, OpenStore(flags.kv_store));
    ASSIGN_OR_RETURN(pages, store->RemoveOlderThan(DaysAgo(*flags.days)));
  }
  if (flags.json) {
    SortedJson json = {{"folder", folder},
                       {"dry_run", flags.dry_run},
                       {"removed", ToJson(pruned.removed)},
                       {"kept", ToJson(pruned.kept)},
                       {"bytes", BytesOf(pruned.removed)}};
    if (pages.has_value()) json["pages"] = *pages;
    return Print(OneLine(json) + "\n");
  }
  const char* const done = flags.dry_run ? "would remove " : "removed ";
  std::string text;
  for (const Entry& entry : pruned.removed) absl::StrAppend(&text, done, entry.file.path, "\n");
  for (const Entry& entry : pruned.kept) {
    absl::StrAppend(&text, "kept ", entry.file.path, ", which is being written\n");
  }
  absl::StrAppend(&text, done, CountText(pruned.removed), ", from ", folder, "\n");
  if (pages.has_value()) {
    absl::StrAppend(&text, done, *pages, *pages == 1 ? " page" : " pages", ", from ",
                    flags.kv_store, "\n");
  }
  return Print(text);
}

void AddPlaces(CLI::App* app, CacheFlags* flags) {
  OptionGroup group(app);
  group.Add("--packed-weights", "DIR", &flags->packed_weights,
            "Folder of packed weights and learned state [packed/ next to fetched models]");
  group.Add("--kv-store", "DIR", &flags->kv_store, "Also the pages in this folder of --kv-store");
  group.AddFlag("--json", &flags->json, "Print a JSON object");
}

}  // namespace

Command AddCacheCommand(CLI::App* program) {
  const auto flags = std::make_shared<CacheFlags>();
  CLI::App* app = program->add_subcommand(
      "cache",
      "List what the engine keeps for later starts: packed weights, learned state, models");
  AddPlaces(app, flags.get());
  OptionGroup(app).Add("--prune", "SIZE|AGE", &flags->prune,
                       "Short for `cache prune` with --to-size SIZE, such as 5G, or with "
                       "--older-than DAYS, such as 30d");
  CLI::App* prune = app->add_subcommand(
      "prune",
      "Remove packed weights and learned state, which later starts make again. Processes that have "
      "mapped a file keep its contents until they end; files that are being written stay");
  OptionGroup group(prune);
  group.AddFlag("--packed", &flags->packed, "Only packed weights");
  group.AddFlag("--learned", &flags->learned, "Only learned state");
  group.Add("--older-than", "DAYS", &flags->days,
            "Remove what was last used more than DAYS days ago", kDays);
  group.Add("--to-size", "SIZE", &flags->to_size,
            "Remove the least recently used files until the others have at most SIZE, such as 5G; "
            "0 removes all",
            kSize);
  group.AddFlag("--dry-run", &flags->dry_run, "Only say what would be removed");
  AddPlaces(prune, flags.get());
  AddExamples(prune,
              {"tandem cache prune --to-size 5G", "tandem cache prune --learned --older-than 7"});
  AddExamples(app, {"tandem cache", "tandem cache --prune 5G",
                    "tandem cache prune --older-than 30 --dry-run"});
  return {.app = app,
          .check = [flags, prune] { return flags->Check(*prune); },
          .run = [flags] { return flags->prunes() ? Prune(*flags) : List(*flags); }};
}

}  // namespace tandem
