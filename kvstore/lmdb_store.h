#ifndef TANDEM_KVSTORE_LMDB_STORE_H_
#define TANDEM_KVSTORE_LMDB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvstore/page_store.h"

namespace tandem {

struct LmdbOptions {
  std::string folder;  // made unless it is there, with its parents
  // Of the file, which is as large as it has ever been needed to be, and no larger than this.
  int64_t max_bytes = int64_t{10} << 30;
  std::function<absl::Time()> now{};  // the time of day, for last uses
};

// A store in one LMDB file of a folder, which any number of processes of one machine may use at
// once. A process that is killed, or a machine that stops, leaves it whole: the last pages may be
// missing. A file that is damaged is replaced by an empty one when it is opened, and counted. A
// store that may be read and not written is opened for reading: then Write fails.
// Errors name the folder: INVALID_ARGUMENT, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED.
absl::StatusOr<std::shared_ptr<PageStore>> OpenLmdbStore(const LmdbOptions& options);

// Whether there is a store in the folder, of this version of the format.
bool HasLmdbStore(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_KVSTORE_LMDB_STORE_H_
