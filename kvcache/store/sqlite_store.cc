#include "kvcache/store/sqlite_store.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kvcache/store/sqlite_file.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Each version of the format has its own file.
constexpr char kFileName[] = "pages-2.sqlite";
constexpr char kOldFileName[] = "pages-1.mdb";

// Numbers are Unix times in microseconds where they are times; `used` is never less than an earlier
// one. `checksum` is that of the key, the tokens and the bytes. Tokens and bytes have the byte
// order of the machine: a store is not portable.
constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS pools(number INTEGER PRIMARY KEY, id BLOB UNIQUE, description BLOB,
  pages INTEGER DEFAULT 0, bytes INTEGER DEFAULT 0, hits INTEGER DEFAULT 0, used INTEGER,
  tokens_per_second REAL);
CREATE TABLE IF NOT EXISTS pages(number INTEGER PRIMARY KEY, key BLOB UNIQUE, pool INTEGER,
  depth INTEGER, used INTEGER, bytes INTEGER, checksum INTEGER, tokens BLOB);
CREATE TABLE IF NOT EXISTS contents(page INTEGER PRIMARY KEY, bytes BLOB);
CREATE INDEX IF NOT EXISTS by_use ON pages(used, depth DESC);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON pages BEGIN
  UPDATE pools SET pages = pages + 1, bytes = bytes + new.bytes WHERE number = new.pool;
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON pages BEGIN
  UPDATE pools SET pages = pages - 1, bytes = bytes - old.bytes WHERE number = old.pool;
  DELETE FROM contents WHERE page = old.number;
END;)";

// Approximate size of a page's rows without its bytes.
constexpr int64_t kIndexBytes = 256;
// The part of the file left for the indexes and for gaps: a 64th, and at least this. An empty file
// has half of that.
constexpr int64_t kShareForOther = 64;
constexpr int64_t kLeastForOther = 16 * SqliteFile::kPageBytes;
// A run is marked as used at most once in this time.
constexpr int64_t kTouchMicroseconds = 60'000'000;

absl::string_view ViewOf(const PageKey& key) { return View(absl::MakeConstSpan(key.bytes)); }
absl::string_view ViewOf(const PoolId& id) { return View(absl::MakeConstSpan(id.bytes)); }
absl::string_view ViewOf(absl::Span<const TokenId> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
}

int64_t ChecksumOf(const PageRef& page, absl::Span<const std::byte> bytes) {
  const std::string head = absl::StrCat(ViewOf(page.key), ViewOf(page.tokens));
  return static_cast<int64_t>(
      XXH3_64bits_withSeed(bytes.data(), bytes.size(), XXH3_64bits(head.data(), head.size())));
}

// Returns the most that a page takes of the file.
int64_t BytesInFile(const PageToWrite& page) {
  const auto num_pages = static_cast<int64_t>(page.bytes.size()) / SqliteFile::kPageBytes + 1;
  return num_pages * SqliteFile::kPageBytes + kIndexBytes +
         static_cast<int64_t>(ViewOf(page.page.tokens).size());
}

// Returns how many of the first pages fit into `limit` bytes, at least one, and their bytes in a
// file.
std::pair<size_t, int64_t> Fitting(absl::Span<const PageToWrite> pages, int64_t limit) {
  size_t count = 0;
  int64_t bytes = 0;
  for (const PageToWrite& page : pages) {
    const int64_t more = BytesInFile(page);
    if (count > 0 && bytes + more > limit) break;
    bytes += more;
    ++count;
  }
  return {count, bytes};
}

class SqliteStore final : public PageStore {
 public:
  SqliteStore(std::unique_ptr<SqliteFile> reader, std::unique_ptr<SqliteFile> writer,
              std::function<absl::Time()> now)
      : now_(now == nullptr ? absl::Now : std::move(now)),
        reader_(std::move(reader)),
        writer_(std::move(writer)) {
    stats_.pages_damaged += writer_->is_replaced();
  }

  ~SqliteStore() override {
    Change([this] { return AddHits(); }).IgnoreError();
  }

  int Find(absl::Span<const PageRef> run) override {
    size_t num_found = 0;
    Look([&](SqliteFile* file) -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<int64_t> uses, UsesOf(file, run));
      num_found = uses.size();
      return absl::OkStatus();
    }).IgnoreError();
    return static_cast<int>(num_found);
  }

  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    std::vector<std::byte> bytes(run.empty() ? 0 : page_bytes);
    int num_read = 0;
    Found found = Found::kIntact;
    for (; num_read < static_cast<int>(run.size()); ++num_read) {
      const PageRef& page = run[num_read];
      // A transaction for each page, which ends before `take`: writers wait for it.
      const absl::Status status =
          Look([&](SqliteFile* file) { return Load(file, page, absl::MakeSpan(bytes), &found); });
      if (!status.ok() || found != Found::kIntact || !take(num_read, bytes)) break;
    }
    if (found == Found::kDamaged) {
      // If it cannot be removed, it is found damaged again.
      Change([&] {
        return writer_->Run("DELETE FROM pages WHERE key = ?", ViewOf(run[num_read].key));
      }).IgnoreError();
    }
    absl::MutexLock lock(&mutex_);
    stats_.pages_damaged += found == Found::kDamaged;
    stats_.pages_read += num_read;
    stats_.bytes_read += num_read * static_cast<int64_t>(page_bytes);
    if (num_read > 0) new_hits_[pool] += num_read;
    return num_read;
  }

  absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) override {
    int64_t num_written = 0, num_evicted = 0;
    for (bool has_room = false; !has_room;) {
      const absl::Status status = Change([&]() -> absl::Status {
        num_written = 0;
        ASSIGN_OR_RETURN(const int64_t most, writer_->MaxBytes());
        const int64_t other = std::max(most / kShareForOther, kLeastForOther);
        const auto [num_fitting, wanted] = Fitting(pages, most - other);
        if (wanted > most - other) {
          return absl::ResourceExhaustedError(absl::StrCat(
              "kv store: a page of ", wanted, " bytes exceeds the limit of ", most - other));
        }
        num_evicted += static_cast<int64_t>(pages.size() - num_fitting);
        pages = pages.first(num_fitting);
        ASSIGN_OR_RETURN(const int64_t room, writer_->FreeBytes());
        has_room = room >= wanted + other / 2;
        if (has_room) return WriteAll(pool, pages, /*is_full=*/num_evicted > 0, &num_written);
        // The pages of the file that this transaction frees are written to its journal if they are
        // used again; the next one does not write them.
        return MakeRoom(wanted + other / 2, &num_evicted);
      });
      RETURN_IF_ERROR(status);
    }
    absl::MutexLock lock(&mutex_);
    stats_.pages_evicted += num_evicted;
    stats_.pages_written += num_written;
    if (!pages.empty()) {
      stats_.bytes_written += num_written * static_cast<int64_t>(pages[0].bytes.size());
    }
    return absl::OkStatus();
  }

  void Touch(absl::Span<const PageRef> run) override {
    const auto mark = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<int64_t> uses, UsesOf(writer_.get(), run));
      ASSIGN_OR_RETURN(const int64_t stamp, NextStamp());
      if (uses.empty() || uses.back() > stamp - kTouchMicroseconds) return absl::OkStatus();
      for (const PageRef& page : run.first(uses.size())) {
        RETURN_IF_ERROR(
            writer_->Run("UPDATE pages SET used = ? WHERE key = ?", stamp, ViewOf(page.key)));
      }
      RETURN_IF_ERROR(writer_->Run(
          "UPDATE pools SET used = ? WHERE number = (SELECT pool FROM pages WHERE key = ?)", stamp,
          ViewOf(run[0].key)));
      return AddHits();
    };
    Change(mark).IgnoreError();  // a run that is evicted too early is only a miss
  }

  absl::StatusOr<std::vector<PoolInfo>> Pools() override {
    std::vector<PoolInfo> infos;
    const auto add = [&](sqlite3_stmt* row) {
      PoolInfo& info = infos.emplace_back();
      const absl::string_view id = BlobAt(row, 0);
      std::copy_n(reinterpret_cast<const std::byte*>(id.data()),
                  std::min(id.size(), info.id.bytes.size()), info.id.bytes.begin());
      info.description = std::string(BlobAt(row, 1));
      info.pages = sqlite3_column_int64(row, 2);
      info.bytes = sqlite3_column_int64(row, 3);
      info.hits = sqlite3_column_int64(row, 4);
      info.last_used = absl::FromUnixMicros(sqlite3_column_int64(row, 5));
      info.tokens_per_second = sqlite3_column_double(row, 6);
    };
    RETURN_IF_ERROR(Look([&](SqliteFile* file) {
      return file->Query(
          "SELECT id, description, pages, bytes, hits, used, tokens_per_second FROM pools", add);
    }));
    absl::MutexLock lock(&mutex_);
    for (PoolInfo& info : infos) {
      const auto hits = new_hits_.find(info.id);
      if (hits != new_hits_.end()) info.hits += hits->second;
    }
    return infos;
  }

  absl::StatusOr<int64_t> RemovePool(const PoolId& pool) override {
    return RemoveWhere(
        "DELETE FROM pages WHERE number IN (SELECT number FROM pages WHERE pool = "
        "(SELECT number FROM pools WHERE id = ?) LIMIT 1000)",
        ViewOf(pool));
  }

  absl::StatusOr<int64_t> RemoveOlderThan(absl::Time time) override {
    return RemoveWhere(
        "DELETE FROM pages WHERE number IN (SELECT number FROM pages WHERE used < ? "
        "ORDER BY used, depth DESC LIMIT 1000)",
        absl::ToUnixMicros(time));
  }

  StoreStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  enum class Found { kMissing, kDamaged, kIntact };

  // Runs `body` in a transaction that reads, or in one that writes with `writer_`. If the file
  // turns out to be damaged, it is replaced.
  absl::Status Look(absl::FunctionRef<absl::Status(SqliteFile*)> body) {
    absl::Status status;
    {
      absl::MutexLock lock(&reader_mutex_);
      status = reader_->Transact("BEGIN", [&] { return body(reader_.get()); });
    }
    if (absl::IsDataLoss(status)) {
      absl::MutexLock lock(&writer_mutex_);
      Replace(status);
    }
    return status;
  }
  absl::Status Change(absl::FunctionRef<absl::Status()> body) {
    absl::MutexLock lock(&writer_mutex_);
    absl::Status status = writer_->Transact(SqliteFile::kBeginToWrite, body);
    if (absl::IsDataLoss(status)) Replace(status);
    return status;
  }
  void Replace(const absl::Status& damage) {
    writer_->Replace(damage).IgnoreError();  // if it fails, the next call fails too
    absl::MutexLock lock(&mutex_);
    ++stats_.pages_damaged;
  }

  // Returns when the pages of the run were last used, up to the first that is missing.
  static absl::StatusOr<std::vector<int64_t>> UsesOf(SqliteFile* file,
                                                     absl::Span<const PageRef> run) {
    std::vector<int64_t> uses;
    for (const PageRef& page : run) {
      ASSIGN_OR_RETURN(const int64_t used, UseOf(file, page.key));
      if (used == kNever) break;
      uses.push_back(used);
    }
    return uses;
  }
  static constexpr int64_t kNever = -1;
  static absl::StatusOr<int64_t> UseOf(SqliteFile* file, const PageKey& key) {
    return file->Number(kNever, "SELECT used FROM pages WHERE key = ?", ViewOf(key));
  }

  // Copies the bytes of a page, and sets `found` to kDamaged if they are not what was written.
  static absl::Status Load(SqliteFile* file, const PageRef& page, absl::Span<std::byte> bytes,
                           Found* found) {
    *found = Found::kMissing;
    int64_t number = 0, checksum = 0;
    const auto take = [&](sqlite3_stmt* row) {
      number = sqlite3_column_int64(row, 0);
      checksum = sqlite3_column_int64(row, 1);
      *found = BlobAt(row, 2) == ViewOf(page.tokens) ? Found::kIntact : Found::kDamaged;
    };
    RETURN_IF_ERROR(file->Query("SELECT number, checksum, tokens FROM pages WHERE key = ?", take,
                                ViewOf(page.key)));
    if (*found != Found::kIntact) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool is_there, file->ReadBlob("contents", "bytes", number, bytes));
    if (!is_there || ChecksumOf(page, bytes) != checksum) *found = Found::kDamaged;
    return absl::OkStatus();
  }

  // Returns a stamp after all earlier ones, even if the clock was set back.
  absl::StatusOr<int64_t> NextStamp() {
    ASSIGN_OR_RETURN(const int64_t next, writer_->Number(0, "SELECT MAX(used) + 1 FROM pages"));
    return std::max(absl::ToUnixMicros(now_()), next);
  }

  // If the store `is_full`, leaves out pages that follow none of its pages.
  absl::Status WriteAll(const PoolInfo& pool, absl::Span<const PageToWrite> pages, bool is_full,
                        int64_t* num_written) {
    SqliteFile* const file = writer_.get();
    RETURN_IF_ERROR(AddHits());
    ASSIGN_OR_RETURN(const int64_t stamp, NextStamp());
    ASSIGN_OR_RETURN(const int64_t oldest, file->Number(stamp, "SELECT MIN(used) FROM pages"));
    ASSIGN_OR_RETURN(
        const int64_t number,
        file->Number(0,
                     "INSERT INTO pools(id, description, tokens_per_second, used) "
                     "VALUES(?1, ?2, ?3, ?4) ON CONFLICT(id) DO UPDATE SET description = ?2, "
                     "tokens_per_second = iif(?3 > 0, ?3, tokens_per_second), used = ?4 "
                     "RETURNING number",
                     ViewOf(pool.id), pool.description, pool.tokens_per_second, stamp));
    for (const PageToWrite& page : pages) {
      ASSIGN_OR_RETURN(const int64_t known, UseOf(file, page.page.key));
      if (known != kNever) continue;
      int64_t used = stamp;
      // Takes the stamp of the page before it, so that it is not kept longer than that page. A
      // page without one is found only while memory has that one: it takes no other page's room.
      if (page.page.depth > 0) {
        ASSIGN_OR_RETURN(const int64_t parent, UseOf(file, page.parent));
        if (parent == kNever && is_full) continue;
        used = parent == kNever ? oldest : parent;
      }
      ASSIGN_OR_RETURN(
          const int64_t row,
          file->Number(0,
                       "INSERT INTO pages(key, pool, depth, used, bytes, checksum, tokens) "
                       "VALUES(?, ?, ?, ?, ?, ?, ?) RETURNING number",
                       ViewOf(page.page.key), number, page.page.depth, used, BytesInFile(page),
                       ChecksumOf(page.page, page.bytes), ViewOf(page.page.tokens)));
      RETURN_IF_ERROR(file->Run("INSERT INTO contents VALUES(?, ?)", row, View(page.bytes)));
      ++*num_written;
    }
    return absl::OkStatus();
  }

  // Removes the least recently used pages until `bytes` are free. Counts them.
  absl::Status MakeRoom(int64_t bytes, int64_t* num_removed) {
    for (;;) {
      ASSIGN_OR_RETURN(const int64_t room, writer_->FreeBytes());
      if (room >= bytes) return RemoveEmptyPools();
      RETURN_IF_ERROR(
          writer_->Run("DELETE FROM pages WHERE number = (SELECT number FROM pages "
                       "ORDER BY used, depth DESC LIMIT 1)"));
      if (writer_->num_changes() == 0) return absl::DataLossError("the file has room for no page");
      ++*num_removed;
    }
  }

  // Runs a statement that removes some pages until it removes none. Returns the number of pages
  // removed.
  template <typename Arg>
  absl::StatusOr<int64_t> RemoveWhere(const char* sql, const Arg& arg) {
    int64_t num_removed = 0;
    for (bool is_done = false; !is_done;) {
      RETURN_IF_ERROR(Change([&]() -> absl::Status {
        RETURN_IF_ERROR(writer_->Run(sql, arg));
        num_removed += writer_->num_changes();
        is_done = writer_->num_changes() == 0;
        return RemoveEmptyPools();
      }));
    }
    return num_removed;
  }
  absl::Status RemoveEmptyPools() { return writer_->Run("DELETE FROM pools WHERE pages <= 0"); }

  absl::Status AddHits() {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, hits] : new_hits_) {
      RETURN_IF_ERROR(
          writer_->Run("UPDATE pools SET hits = hits + ? WHERE id = ?", hits, ViewOf(id)));
    }
    new_hits_.clear();
    return absl::OkStatus();
  }

  const std::function<absl::Time()> now_;
  // A connection for each thread of the worker, so that reading does not wait for writing.
  absl::Mutex reader_mutex_;
  const std::unique_ptr<SqliteFile> reader_;
  absl::Mutex writer_mutex_;
  const std::unique_ptr<SqliteFile> writer_;
  mutable absl::Mutex mutex_;
  StoreStats stats_ ABSL_GUARDED_BY(mutex_);
  HashMap<PoolId, int64_t> new_hits_ ABSL_GUARDED_BY(mutex_);  // not in the file yet
};

std::string PathIn(const std::string& folder, const char* name) {
  std::error_code error;
  const std::string path = (fs::path(folder) / name).string();
  return fs::exists(path, error) ? path : "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<PageStore>> OpenSqliteStore(const SqliteOptions& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) return StoreError(error.value(), options.folder);
  const std::string path = (fs::path(options.folder) / kFileName).string();
  const int64_t max_bytes = std::max(options.max_bytes, kMinStoreBytes);
  ASSIGN_OR_RETURN(auto writer, SqliteFile::Open(path, kSchema, max_bytes));
  ASSIGN_OR_RETURN(auto reader, SqliteFile::Open(path, kSchema, max_bytes));
  return std::make_shared<SqliteStore>(std::move(reader), std::move(writer), options.now);
}

bool HasSqliteStore(const std::string& folder) { return !PathIn(folder, kFileName).empty(); }

std::string OldStoreIn(const std::string& folder) { return PathIn(folder, kOldFileName); }

absl::Status RemoveOldStore(const std::string& folder) {
  std::error_code error;
  for (const char* name : {kOldFileName, "pages-1.mdb-lock", "open.lock"}) {
    fs::remove(fs::path(folder) / name, error);
    if (error) return StoreError(error.value(), (fs::path(folder) / name).string());
  }
  return absl::OkStatus();
}

}  // namespace tandem
