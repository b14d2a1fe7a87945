#ifndef TANDEM_KVCACHE_STORE_LMDB_STORE_H_
#define TANDEM_KVCACHE_STORE_LMDB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcache/store/page_store.h"

namespace tandem {

struct LmdbOptions {
  std::string folder;  // created if missing, with its parents
  // Maximum size of the file. The file grows as needed and never shrinks.
  int64_t max_bytes = int64_t{10} << 30;
  std::function<absl::Time()> now{};  // the clock for last uses; absl::Now if empty
};

// Opens a store in one LMDB file of a folder. Any number of processes on one machine may use it at
// once. If a process is killed or the machine stops, the store stays consistent; only the last
// pages may be missing. A damaged file is replaced by an empty one when it is opened, and counted
// as a damaged page. Without write permission the store is opened read-only, and Write fails.
// Errors name the folder: INVALID_ARGUMENT, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<PageStore>> OpenLmdbStore(const LmdbOptions& options);

// Whether the folder has a store in this version of the format.
bool HasLmdbStore(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_LMDB_STORE_H_
