#include "kvcache/store/sqlite_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace tandem {
namespace {

// More than any transaction of another process takes.
constexpr int kBusyMilliseconds = 10'000;
constexpr mode_t kFileMode = 0600;  // pages contain the tokens of prompts

}  // namespace

absl::Status StoreError(int error, absl::string_view what) {
  const absl::StatusCode code = error == EFBIG   ? absl::StatusCode::kResourceExhausted
                                : error == EROFS ? absl::StatusCode::kPermissionDenied
                                                 : absl::ErrnoToStatusCode(error);
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(error)));
}

SqliteFile::SqliteFile(const std::string& path, absl::string_view schema, int64_t max_bytes)
    : path_(path),
      schema_(schema),
      set_max_(absl::StrCat("PRAGMA max_page_count = ", max_bytes / kPageBytes)) {}

absl::StatusOr<std::unique_ptr<SqliteFile>> SqliteFile::Open(const std::string& path,
                                                             absl::string_view schema,
                                                             int64_t max_bytes) {
  // SQLite would let all read the file that it creates.
  const int created = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  if (created >= 0) {
    close(created);
  } else if (errno != EEXIST) {
    return StoreError(errno, path);
  }
  std::unique_ptr<SqliteFile> file(new SqliteFile(path, schema, max_bytes));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (const int code = sqlite3_open_v2(path.c_str(), &file->db_, flags, nullptr);
      code != SQLITE_OK) {
    return file->StatusOf(code);
  }
  sqlite3_extended_result_codes(file->db_, 1);
  sqlite3_busy_timeout(file->db_, kBusyMilliseconds);
  absl::Status status = file->SetUp();
  if (absl::IsDataLoss(status)) status = file->Replace(status);
  RETURN_IF_ERROR(status);
  return file;
}

SqliteFile::~SqliteFile() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

absl::Status SqliteFile::SetUp() {
  // Without `cache_spill` a transaction is in memory until its commit, and readers wait only for
  // that. Without `secure_delete` removed pages are not overwritten. The journal has the pages that
  // change, not new ones: writing takes 0.6 of the time that it takes with a write-ahead log.
  // SQLite maps at most 2 GiB, and reads the rest.
  RETURN_IF_ERROR(Execute(absl::StrCat(
      "PRAGMA page_size = ", kPageBytes,
      "; PRAGMA synchronous = NORMAL; PRAGMA cache_spill = OFF; ",
      "PRAGMA secure_delete = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; ",
      "PRAGMA mmap_size = 2147418112; PRAGMA journal_mode = TRUNCATE; ", set_max_)));
  const bool is_read_only = sqlite3_db_readonly(db_, nullptr) == 1;
  return is_read_only ? absl::OkStatus()
                      : Transact(kBeginToWrite, [this] { return Execute(schema_); });
}

absl::Status SqliteFile::Replace(const absl::Status& damage) {
  if (sqlite3_db_readonly(db_, nullptr) == 1) return damage;
  Log(LogLevel::kWarning,
      absl::StrCat(path_, ": is damaged: ", damage.message(), "; starting with an empty store"));
  is_replaced_ = true;
  sqlite3_db_config(db_, SQLITE_DBCONFIG_RESET_DATABASE, 1, nullptr);
  const absl::Status status = Execute("VACUUM");
  sqlite3_db_config(db_, SQLITE_DBCONFIG_RESET_DATABASE, 0, nullptr);
  RETURN_IF_ERROR(status);
  return SetUp();
}

absl::StatusOr<int64_t> SqliteFile::MaxBytes() {
  // Another process may have grown the file beyond the maximum of this one. The statement then sets
  // the maximum to the size.
  ASSIGN_OR_RETURN(const int64_t pages, Number(0, set_max_.c_str()));
  return pages * kPageBytes;
}

absl::StatusOr<int64_t> SqliteFile::FreeBytes() {
  ASSIGN_OR_RETURN(const int64_t most, MaxBytes());
  ASSIGN_OR_RETURN(const int64_t pages, Number(0, "PRAGMA page_count"));
  ASSIGN_OR_RETURN(const int64_t unused, Number(0, "PRAGMA freelist_count"));
  return most - (pages - unused) * kPageBytes;
}

absl::StatusOr<bool> SqliteFile::ReadBlob(const char* table, const char* column, int64_t row,
                                          absl::Span<std::byte> bytes) {
  sqlite3_blob* blob = nullptr;
  int code = sqlite3_blob_open(db_, "main", table, column, row, /*flags=*/0, &blob);
  if (code == SQLITE_ERROR) return false;  // no such row, or no blob
  absl::Cleanup closing = [blob] { sqlite3_blob_close(blob); };
  const int size = static_cast<int>(bytes.size());
  if (code == SQLITE_OK && sqlite3_blob_bytes(blob) != size) return false;
  if (code == SQLITE_OK) code = sqlite3_blob_read(blob, bytes.data(), size, /*iOffset=*/0);
  if (code != SQLITE_OK) return StatusOf(code);
  return true;
}

absl::Status SqliteFile::Transact(const char* begin, absl::FunctionRef<absl::Status()> body) {
  // If memory ran out, an earlier transaction may not have been rolled back.
  if (sqlite3_get_autocommit(db_) == 0) RETURN_IF_ERROR(Execute("ROLLBACK"));
  RETURN_IF_ERROR(Run(begin));
  absl::Cleanup roll_back = [this] {
    // Fails if there is none, because SQLite has rolled it back, or it was committed.
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  };
  RETURN_IF_ERROR(body());
  return Run("COMMIT");
}

absl::Status SqliteFile::Execute(const std::string& statements) {
  return StatusOf(sqlite3_exec(db_, statements.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<sqlite3_stmt*> SqliteFile::Prepare(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    RETURN_IF_ERROR(
        StatusOf(sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr)));
  }
  return statement;
}

absl::Status SqliteFile::Step(sqlite3_stmt* statement, OnRow on_row) {
  absl::Cleanup reset = [statement] {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
  };
  errno = 0;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) on_row(statement);
  return code == SQLITE_DONE ? absl::OkStatus() : StatusOf(code);
}

absl::Status SqliteFile::StatusOf(int code) const {
  if (code == SQLITE_OK) return absl::OkStatus();
  // SQLite does not keep the error of a commit, but it is the last one of this thread.
  const int error = sqlite3_system_errno(db_) != 0 ? sqlite3_system_errno(db_) : errno;
  const std::string message = absl::StrCat(path_, ": ", sqlite3_errmsg(db_));
  switch (code & 0xff) {
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return error == 0 ? absl::InternalError(message) : StoreError(error, message);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_ERROR:  // the statements are valid: the schema is damaged
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace tandem
