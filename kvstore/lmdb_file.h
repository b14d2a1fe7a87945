#ifndef TANDEM_KVSTORE_LMDB_FILE_H_
#define TANDEM_KVSTORE_LMDB_FILE_H_

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
#include "kvstore/page_store.h"

namespace tandem {

// The error of a call of LMDB, which `what` names.
absl::Status LmdbError(int code, absl::string_view what);

// Values as LMDB takes and gives them.
inline MDB_val ValueOf(absl::string_view bytes) {
  return {.mv_size = bytes.size(), .mv_data = const_cast<char*>(bytes.data())};
}
inline absl::string_view ViewOf(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

// Records in the byte order of the machine: a store does not travel.
template <typename T>
absl::string_view BytesOf(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

// False if the bytes are not those of a record.
template <typename T>
bool ReadRecord(const MDB_val& value, T* record) {
  if (value.mv_size < sizeof(T)) return false;
  std::memcpy(record, value.mv_data, sizeof(T));
  return true;
}

// A store's file and its tables. Thread-safe.
class LmdbFile {
 public:
  // Opens or makes the file of this version of the format in `folder`. A damaged file is replaced
  // by an empty one; then `is_replaced()`. One process may have a file open only once.
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

  // Runs `body` in a transaction. What it writes is there for others when it has returned OK, and
  // not at all otherwise.
  absl::Status Read(absl::FunctionRef<absl::Status(MDB_txn*)> body);
  absl::Status Write(absl::FunctionRef<absl::Status(MDB_txn*)> body);

 private:
  explicit LmdbFile(std::string path) : path_(std::move(path)) {}
  absl::Status OpenEnvironment(int64_t max_bytes);
  absl::Status OpenTables();
  absl::Status Run(unsigned flags, absl::FunctionRef<absl::Status(MDB_txn*)> body);

  const std::string path_;
  bool is_read_only_ = false;
  bool is_replaced_ = false;
  MDB_env* env_ = nullptr;
  MDB_dbi pages_ = 0;  // PageKey -> checksum, tokens, bytes
  MDB_dbi uses_ = 0;   // PageKey -> when it was used, and what it occupies
  MDB_dbi order_ = 0;  // last use, depth, PageKey -> nothing
  MDB_dbi pools_ = 0;  // number -> the pool
  // Transactions hold it shared. Another process may let the file grow beyond what is mapped here:
  // mapping it anew wants that there is none.
  absl::Mutex map_mutex_;
};

// The pools as one transaction sees them. What it changes is written by Store.
class PoolTable {
 public:
  PoolTable(const LmdbFile& file, MDB_txn* txn) : table_(file.pools()), txn_(txn) {}

  absl::Status Load();
  absl::Status Store();

  std::optional<uint32_t> Find(const PoolId& id) const;
  // The number of a pool, which is made unless it is there.
  uint32_t NumberOf(const PoolInfo& info);
  // Pages that came, or left if `pages` is negative, each with so many bytes.
  void Count(uint32_t number, int pages, int64_t bytes_each);
  void MarkUsed(uint32_t number, uint64_t stamp) { pools_[number].record.last_used = stamp; }
  void AddHits(const PoolId& id, int64_t hits);
  // Forgets those that have no page.
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

#endif  // TANDEM_KVSTORE_LMDB_FILE_H_
