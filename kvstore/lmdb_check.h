#ifndef TANDEM_KVSTORE_LMDB_CHECK_H_
#define TANDEM_KVSTORE_LMDB_CHECK_H_

#include <lmdb.h>

#include <string>

#include "absl/status/status.h"

namespace tandem {

// LMDB trusts what it maps: a bit that was flipped in a page of an index, or a file that was cut
// off, would end the process. These two say whether it may be let loose on a file (format of LMDB
// 0.9). Errors are DATA_LOSS and name the page.

// Before the file is opened: its two roots. A file that is missing or empty is in order.
absl::Status CheckLmdbRoots(const std::string& path);

// After that: every page of the indexes, and where values lie. The bytes of values have checksums,
// which are looked at when they are read. Other processes may write meanwhile.
absl::Status CheckLmdbPages(MDB_env* env, const std::string& path);

}  // namespace tandem

#endif  // TANDEM_KVSTORE_LMDB_CHECK_H_
