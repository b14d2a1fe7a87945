#ifndef TANDEM_KVSTORE_LMDB_FILE_H_
#define TANDEM_KVSTORE_LMDB_FILE_H_

#include <lmdb.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

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

}  // namespace tandem

#endif  // TANDEM_KVSTORE_LMDB_FILE_H_
