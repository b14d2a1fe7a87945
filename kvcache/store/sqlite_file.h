#ifndef TANDEM_KVCACHE_STORE_SQLITE_FILE_H_
#define TANDEM_KVCACHE_STORE_SQLITE_FILE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/status_macros.h"

namespace tandem {

// Converts the error of a system call. `what` comes first in the message.
absl::Status StoreError(int error, absl::string_view what);

inline absl::string_view BlobAt(sqlite3_stmt* row, int column) {
  // In this order: the first call may convert the value.
  const void* const bytes = sqlite3_column_blob(row, column);
  return {static_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(row, column))};
}

// A connection to a SQLite file. Errors are DATA_LOSS if the file is damaged, RESOURCE_EXHAUSTED if
// it cannot grow, PERMISSION_DENIED, NOT_FOUND, UNAVAILABLE if another process has locked it for
// long, or INTERNAL. Not thread-safe. Must not be used after fork().
class SqliteFile {
 public:
  using OnRow = absl::FunctionRef<void(sqlite3_stmt* row)>;

  // Opens a file, or creates it, and runs the statements `schema`, which must be valid for an empty
  // file and have no effect on others. A damaged file is replaced. Without write permission the
  // file is opened read-only, and as it is.
  static absl::StatusOr<std::unique_ptr<SqliteFile>> Open(const std::string& path,
                                                          absl::string_view schema,
                                                          int64_t max_bytes);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Runs one statement. Its arguments are integers, floating-point numbers, and blobs, as views or
  // strings. `sql` must outlive the file.
  template <typename... Args>
  absl::Status Query(const char* sql, OnRow on_row, const Args&... args) {
    ASSIGN_OR_RETURN(sqlite3_stmt* const statement, Prepare(sql));
    int i = 0;
    (Bind(statement, ++i, args), ...);
    return Step(statement, on_row);
  }
  template <typename... Args>
  absl::Status Run(const char* sql, const Args&... args) {
    const auto ignore = [](sqlite3_stmt*) {};
    return Query(sql, ignore, args...);
  }
  int64_t num_changes() const { return sqlite3_changes64(db_); }  // rows that Run changed
  // The same for a statement that returns one number. Returns `otherwise` if there is none.
  template <typename... Args>
  absl::StatusOr<int64_t> Number(int64_t otherwise, const char* sql, const Args&... args) {
    const auto take = [&](sqlite3_stmt* row) {
      if (sqlite3_column_type(row, 0) == SQLITE_INTEGER) otherwise = sqlite3_column_int64(row, 0);
    };
    RETURN_IF_ERROR(Query(sql, take, args...));
    return otherwise;
  }
  // Runs `body` in a transaction that the statement `begin` opens. If it returns OK, the
  // transaction is committed; otherwise it is rolled back.
  absl::Status Transact(const char* begin, absl::FunctionRef<absl::Status()> body);
  // Waits for other writers. "BEGIN" would fail at the first change instead.
  static constexpr char kBeginToWrite[] = "BEGIN IMMEDIATE";

  // Copies the blob in `column` of a table's row. Returns false if there is none of this size.
  absl::StatusOr<bool> ReadBlob(const char* table, const char* column, int64_t row,
                                absl::Span<std::byte> bytes);

  // The maximum size of the file, and how much of it is free.
  absl::StatusOr<int64_t> MaxBytes();
  absl::StatusOr<int64_t> FreeBytes();

  // Replaces a file that is damaged, as `damage` says, by an empty one, with a warning. Other
  // processes that have it open then use the new one.
  absl::Status Replace(const absl::Status& damage);
  bool is_replaced() const { return is_replaced_; }

  static constexpr int64_t kPageBytes = 16384;

 private:
  SqliteFile(const std::string& path, absl::string_view schema, int64_t max_bytes);
  absl::Status SetUp();
  absl::Status Execute(const std::string& statements);
  absl::StatusOr<sqlite3_stmt*> Prepare(const char* sql);
  absl::Status Step(sqlite3_stmt* statement, OnRow on_row);
  absl::Status StatusOf(int code) const;

  template <typename T>
  static void Bind(sqlite3_stmt* statement, int i, const T& value) {
    if constexpr (std::is_integral_v<T>) {
      sqlite3_bind_int64(statement, i, static_cast<int64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      sqlite3_bind_double(statement, i, value);
    } else {
      sqlite3_bind_blob64(statement, i, value.data(), value.size(), SQLITE_STATIC);
    }
  }

  const std::string path_;
  const std::string schema_;
  const std::string set_max_;  // returns the maximum number of pages
  sqlite3* db_ = nullptr;
  bool is_replaced_ = false;
  HashMap<const char*, sqlite3_stmt*> statements_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_SQLITE_FILE_H_
