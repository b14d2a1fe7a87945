// tandem kv-store: lists and removes the pages in a folder of --kv-store.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kvcache/store/page_store.h"
#include "kvcache/store/sqlite_store.h"
#include "tandem/json_value.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/kv_store_listing.h"
#include "tools/option_group.h"
#include "tools/report.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct KvStoreCommandFlags {
  std::string folder;
  std::string pool;
  std::optional<double> days;
  bool remove_old = false;
  bool json = false;
};

// Finds the only pool whose digits begin with `digits`.
absl::StatusOr<PoolId> FindPool(const std::vector<PoolInfo>& pools, const std::string& digits) {
  std::vector<PoolId> found;
  for (const PoolInfo& pool : pools) {
    if (absl::StartsWith(HexOf(pool.id), digits)) found.push_back(pool.id);
  }
  if (found.size() == 1) return found.front();
  const std::string field = absl::StrCat("--remove: \"", digits, "\" ");
  return found.empty()
             ? absl::NotFoundError(absl::StrCat(field, "is not the beginning of any pool"))
             : absl::InvalidArgumentError(
                   absl::StrCat(field, "is the beginning of ", found.size(), " pools"));
}

absl::StatusOr<int64_t> Remove(const KvStoreCommandFlags& flags, PageStore* store) {
  int64_t num_removed = 0;
  if (!flags.pool.empty()) {
    ASSIGN_OR_RETURN(const std::vector<PoolInfo> pools, store->Pools());
    ASSIGN_OR_RETURN(const PoolId pool, FindPool(pools, flags.pool));
    ASSIGN_OR_RETURN(num_removed, store->RemovePool(pool));
  }
  if (flags.days.has_value()) {
    ASSIGN_OR_RETURN(const int64_t old, store->RemoveOlderThan(DaysAgo(*flags.days)));
    num_removed += old;
  }
  return num_removed;
}

absl::Status Run(const KvStoreCommandFlags& flags) {
  ASSIGN_OR_RETURN(const std::shared_ptr<PageStore> store, OpenStore(flags.folder));
  ASSIGN_OR_RETURN(const int64_t num_removed, Remove(flags, store.get()));
  if (flags.remove_old) RETURN_IF_ERROR(RemoveOldStore(flags.folder));
  const std::string old = OldStoreIn(flags.folder);
  ASSIGN_OR_RETURN(const std::vector<PoolInfo> pools, store->Pools());
  if (flags.json) {
    const SortedJson json = {
        {"removed", num_removed}, {"pools", PoolsJson(pools)}, {"old_file", old}};
    return Print(OneLine(json) + "\n");
  }
  std::string text;
  if (!flags.pool.empty() || flags.days.has_value()) {
    absl::StrAppend(&text, "removed ", num_removed, num_removed == 1 ? " page\n" : " pages\n");
  }
  absl::StrAppend(&text, PoolsText(pools));
  if (!old.empty()) {
    absl::StrAppend(&text, old, " is of an earlier version and is not used; see --remove-old\n");
  }
  return Print(text);
}

}  // namespace

Command AddKvStoreCommand(CLI::App* program) {
  const auto flags = std::make_shared<KvStoreCommandFlags>();
  CLI::App* app = program->add_subcommand(
      "kv-store", "List the pools of pages in a folder of --kv-store, or remove pages");
  OptionGroup group(app);
  app->add_option("DIR", flags->folder, "The folder")->required();
  group.Add("--remove", "POOL", &flags->pool,
            "Remove the pages of this pool, given by the first digits of its name");
  group.Add("--older-than", "DAYS", &flags->days,
            "Remove pages that were last used more than DAYS days ago", {.low = 0, .high = 36500});
  group.AddFlag("--remove-old", &flags->remove_old,
                "Remove a file in the format of an earlier version, pages-1.mdb");
  group.AddFlag("--json", &flags->json, "Print a JSON object, with full names");
  AddExamples(app, {"tandem kv-store store", "tandem kv-store store --older-than 30",
                    "tandem kv-store store --remove 1a2b"});
  return {
      .app = app, .check = [] { return absl::OkStatus(); }, .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
