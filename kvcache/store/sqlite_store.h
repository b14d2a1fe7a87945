#ifndef TANDEM_KVCACHE_STORE_SQLITE_STORE_H_
#define TANDEM_KVCACHE_STORE_SQLITE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcache/store/page_store.h"

namespace tandem {

struct SqliteOptions {
  std::string folder;  // created if missing, with its parents
  // Maximum size of the file. The file grows as needed and never shrinks.
  int64_t max_bytes = int64_t{10} << 30;
  std::function<absl::Time()> now{};  // the clock for last uses; absl::Now if empty
};

// Opens a store in one SQLite file of a folder. Any number of processes on one machine may use it
// at once; none may use it after fork(). If a process is killed or the machine stops, the store
// stays consistent; only the last pages may be missing. A damaged file is replaced by an empty one
// when the damage is met, and counted as a damaged page. Without write permission the store is
// opened read-only, and Write fails. Errors name the folder: PERMISSION_DENIED, NOT_FOUND or
// RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<PageStore>> OpenSqliteStore(const SqliteOptions& options);

// Whether the folder has a store in this version of the format.
bool HasSqliteStore(const std::string& folder);

// Returns the path of a store in the format of an earlier version, or "" if the folder has none.
// Such a store is not used.
std::string OldStoreIn(const std::string& folder);
absl::Status RemoveOldStore(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_SQLITE_STORE_H_
