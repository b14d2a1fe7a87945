#ifndef TANDEM_TOOLS_KV_STORE_LISTING_H_
#define TANDEM_TOOLS_KV_STORE_LISTING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcache/store/page_store.h"
#include "tandem/json_value.h"

namespace tandem {

// Opens the store in a folder of --kv-store. NOT_FOUND, naming the folder, if it has none.
absl::StatusOr<std::shared_ptr<PageStore>> OpenStore(const std::string& folder);

// A list of pools, and the same as a table for people.
SortedJson PoolsJson(const std::vector<PoolInfo>& pools);
std::string PoolsText(const std::vector<PoolInfo>& pools);

// The time so many days before now.
absl::Time DaysAgo(double days);
// "2026-11-28 18:05", in the local time zone.
std::string TimeText(absl::Time time);

}  // namespace tandem

#endif  // TANDEM_TOOLS_KV_STORE_LISTING_H_
