#ifndef TANDEM_KVCACHE_STORE_LMDB_FILE_H_
#define TANDEM_KVCACHE_STORE_LMDB_FILE_H_

#include <lmdb.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kvcache/store/page_store.h"

namespace tandem {

// Converts an error code of LMDB. `what` comes first in the message: the file, folder or table.
absl::Status LmdbError(int code, absl::string_view what);

// Conversions from and to the values of LMDB.
inline MDB_val ValueOf(absl::string_view bytes) {
  return {.mv_size = bytes.size(), .mv_data = const_cast<char*>(bytes.data())};
}
inline absl::string_view ViewOf(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

// Records have the byte order of the machine: a store is not portable.
template <typename T>
absl::string_view BytesOf(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

// Returns false if the value is too short for a record.
template <typename T>
bool ReadRecord(const MDB_val& value, T* record) {
  if (value.mv_size < sizeof(T)) return false;
  std::memcpy(record, value.mv_data, sizeof(T));
  return true;
}

// A store's file and its tables. Thread-safe.
class LmdbFile {
 public:
  // Opens or creates the file for this version of the format in `folder`. A damaged file is
  // replaced by an empty one, and `is_replaced()` is then true. A process may have a file open only
  // once.
  static absl::StatusOr<std::unique_ptr<LmdbFile>> Open(const std::string& folder,
                                                        int64_t max_bytes);
  ~LmdbFile();
  LmdbFile(const LmdbFile&) = delete;
  LmdbFile& operator=(const LmdbFile&) = delete;

  static std::string PathIn(const std::string& folder);

  bool is_replaced() const { return is_replaced_; }
  int64_t max_bytes() const;

  MDB_dbi pages() const { return pages_; }
  MDB_dbi uses() const { return uses_; }
  MDB_dbi order() const { return order_; }
  MDB_dbi pools() const { return pools_; }

  // Runs `body` in a transaction. If it returns OK, the transaction is committed; otherwise it is
  // aborted.
  absl::Status Read(absl::FunctionRef<absl::Status(MDB_txn*)> body);
  absl::Status Write(absl::FunctionRef<absl::Status(MDB_txn*)> body);

 private:
  explicit LmdbFile(std::string path) : path_(std::move(path)) {}
  absl::Status OpenEnvironment(int64_t max_bytes);
  absl::Status OpenTables();
  // LMDB reports EIO if a write was cut short. Returns why the file cannot grow (ENOSPC), else EIO.
  int CodeOfShortWrite() const;
  absl::Status Run(unsigned flags, absl::FunctionRef<absl::Status(MDB_txn*)> body);

  const std::string path_;
  bool is_read_only_ = false;
  bool is_replaced_ = false;
  MDB_env* env_ = nullptr;
  MDB_dbi pages_ = 0;  // PageKey -> checksum, tokens, bytes
  MDB_dbi uses_ = 0;   // PageKey -> last use, and size in the file
  MDB_dbi order_ = 0;  // last use, depth, PageKey -> nothing
  MDB_dbi pools_ = 0;  // number -> pool
  // Transactions hold it shared. If another process grows the file beyond what is mapped here, the
  // file must be mapped again while no transaction is open.
  absl::Mutex map_mutex_;
};

// The pools as one transaction sees them. Store() writes the changes.
class PoolTable {
 public:
  PoolTable(const LmdbFile& file, MDB_txn* txn) : table_(file.pools()), txn_(txn) {}

  absl::Status Load();
  absl::Status Store();

  std::optional<uint32_t> Find(const PoolId& id) const;
  // Returns the number of a pool. Adds the pool if it is new.
  uint32_t NumberOf(const PoolInfo& info);
  // Counts pages that were added, or removed if `pages` is negative.
  void Count(uint32_t number, int pages, int64_t bytes_each);
  void MarkUsed(uint32_t number, uint64_t stamp) { pools_[number].record.last_used = stamp; }
  void AddHits(const PoolId& id, int64_t hits);
  // Removes the pools without pages.
  absl::Status RemoveEmpty();

  int64_t bytes() const;  // of all pages
  std::vector<PoolInfo> Infos() const;

 private:
  struct Record {
    PoolId id;
    int64_t pages;
    int64_t bytes;
    int64_t hits;
    uint64_t last_used;  // microseconds
    double tokens_per_second;
  };
  struct Pool {
    Record record = {};
    std::string description;
  };

  const MDB_dbi table_;
  MDB_txn* const txn_;
  std::map<uint32_t, Pool> pools_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_LMDB_FILE_H_
