#include "tools/kv_store_listing.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvcache/store/sqlite_store.h"
#include "tandem/json_value.h"
#include "tools/table.h"

namespace tandem {

absl::StatusOr<std::shared_ptr<PageStore>> OpenStore(const std::string& folder) {
  if (HasSqliteStore(folder) || !OldStoreIn(folder).empty())
    return OpenSqliteStore({.folder = folder});
  return absl::NotFoundError(absl::StrCat(folder, ": must be a folder of --kv-store"));
}

SortedJson PoolsJson(const std::vector<PoolInfo>& pools) {
  SortedJson json = SortedJson::array();
  for (const PoolInfo& pool : pools) {
    json.push_back({{"pool", HexOf(pool.id)},
                    {"pages", pool.pages},
                    {"bytes", pool.bytes},
                    {"hits", pool.hits},
                    {"last_used", absl::FormatTime(pool.last_used)},
                    {"tokens_per_second", pool.tokens_per_second},
                    {"description", pool.description}});
  }
  return json;
}

std::string PoolsText(const std::vector<PoolInfo>& pools) {
  constexpr size_t kShownDigits = 16;  // of a pool's 64
  if (pools.empty()) return "no pages\n";
  Table table({"pool", "pages", "MiB", "hits", "last used", "of"});
  for (const PoolInfo& pool : pools) {
    table.AddRow({HexOf(pool.id).substr(0, kShownDigits), absl::StrCat(pool.pages),
                  absl::StrCat((pool.bytes + (1 << 20) - 1) >> 20), absl::StrCat(pool.hits),
                  TimeText(pool.last_used), pool.description});
  }
  return table.ToText();
}

absl::Time DaysAgo(double days) { return absl::Now() - days * absl::Hours(24); }

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::LocalTimeZone());
}

}  // namespace tandem
