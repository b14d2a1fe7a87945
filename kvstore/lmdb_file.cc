#include "kvstore/lmdb_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/lmdb_check.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Another version of the format has another file.
constexpr char kFileName[] = "pages-1.mdb";
constexpr char kOpenLock[] = "open.lock";
constexpr mode_t kFileMode = 0600;  // caches say what prompts said
constexpr unsigned kMostTables = 4;

bool IsDenied(int code) { return code == EACCES || code == EPERM || code == EROFS; }

// Held while a file is opened, so that one process at a time checks and replaces it. A folder that
// cannot be written needs none.
class OpenLock {
 public:
  explicit OpenLock(const std::string& folder)
      : descriptor_(
            open((fs::path(folder) / kOpenLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode)) {
    while (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~OpenLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenLock(const OpenLock&) = delete;
  OpenLock& operator=(const OpenLock&) = delete;

 private:
  const int descriptor_;
};

}  // namespace

absl::Status LmdbError(int code, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", mdb_strerror(code));
  if (code == MDB_MAP_FULL || code == ENOSPC || code == EDQUOT) {
    return absl::ResourceExhaustedError(message);
  }
  if (IsDenied(code)) return absl::PermissionDeniedError(message);
  if (code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND || code == MDB_INVALID ||
      code == MDB_VERSION_MISMATCH || code == MDB_BAD_VALSIZE || code == MDB_INCOMPATIBLE) {
    return absl::DataLossError(message);
  }
  if (code == ENOENT || code == ENOTDIR) return absl::NotFoundError(message);
  return absl::InternalError(message);
}

std::string LmdbFile::PathIn(const std::string& folder) {
  return (fs::path(folder) / kFileName).string();
}

absl::StatusOr<std::unique_ptr<LmdbFile>> LmdbFile::Open(const std::string& folder,
                                                         int64_t max_bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return LmdbError(error.value(), folder);
  const std::string path = PathIn(folder);
  const OpenLock lock(folder);
  bool is_replaced = false;
  for (;;) {
    std::unique_ptr<LmdbFile> file(new LmdbFile(path));
    absl::Status status = CheckLmdbRoots(path);
    if (status.ok()) status = file->OpenEnvironment(max_bytes);
    if (status.ok()) status = CheckLmdbPages(file->env_, path);
    if (status.ok()) status = file->OpenTables();
    if (status.ok()) {
      file->is_replaced_ = is_replaced;
      return file;
    }
    if (!absl::IsDataLoss(status) || is_replaced) return status;
    Log(LogLevel::kWarning, absl::StrCat(status.message(), "; the store begins anew"));
    file.reset();
    // Processes that have it open keep what they have; others find the new one. Each file has a
    // lock file of its own.
    for (const std::string& old : {path, path + "-lock"}) {
      fs::remove(old, error);
      if (error) return LmdbError(error.value(), old);
    }
    is_replaced = true;
  }
}

LmdbFile::~LmdbFile() {
  if (env_ != nullptr) mdb_env_close(env_);
}

absl::Status LmdbFile::OpenEnvironment(int64_t max_bytes) {
  const auto open = [&](unsigned flags) {
    if (env_ != nullptr) mdb_env_close(env_);
    env_ = nullptr;
    int code = mdb_env_create(&env_);
    if (code == 0) code = mdb_env_set_maxdbs(env_, kMostTables);
    if (code == 0) code = mdb_env_set_mapsize(env_, static_cast<size_t>(max_bytes));
    // Without syncing its root a machine that stops loses the last pages, and no more.
    if (code == 0) {
      code = mdb_env_open(env_, path_.c_str(), MDB_NOSUBDIR | MDB_NOTLS | MDB_NOMETASYNC | flags,
                          kFileMode);
    }
    return code;
  };
  int code = open(0);
  if (IsDenied(code)) {
    is_read_only_ = true;
    code = open(MDB_RDONLY);
    // Nor can readers be entered: that nobody writes is then what the folder promises.
    if (IsDenied(code)) code = open(MDB_RDONLY | MDB_NOLOCK);
  }
  if (code != 0) return LmdbError(code, path_);
  if (!is_read_only_) {
    int num_dead = 0;  // readers that were killed keep old pages from being used again
    mdb_reader_check(env_, &num_dead);
  }
  return absl::OkStatus();
}

absl::Status LmdbFile::OpenTables() {
  const unsigned create = is_read_only_ ? 0 : MDB_CREATE;
  return Run(is_read_only_ ? MDB_RDONLY : 0, [&](MDB_txn* txn) {
    const struct {
      const char* name;
      MDB_dbi* table;
    } tables[] = {{"pages", &pages_}, {"uses", &uses_}, {"order", &order_}, {"pools", &pools_}};
    for (const auto& [name, table] : tables) {
      const int code = mdb_dbi_open(txn, name, create, table);
      if (code == MDB_NOTFOUND) return absl::NotFoundError(absl::StrCat(path_, ": is empty"));
      if (code != 0) return LmdbError(code, path_);
    }
    return absl::OkStatus();
  });
}

int64_t LmdbFile::max_bytes() const {
  MDB_envinfo info;
  mdb_env_info(env_, &info);
  return static_cast<int64_t>(info.me_mapsize);
}

absl::Status LmdbFile::Read(absl::FunctionRef<absl::Status(MDB_txn*)> body) {
  return Run(MDB_RDONLY, body);
}

absl::Status LmdbFile::Write(absl::FunctionRef<absl::Status(MDB_txn*)> body) {
  if (is_read_only_) {
    return absl::PermissionDeniedError(absl::StrCat(path_, ": may be read and not written"));
  }
  return Run(0, body);
}

absl::Status LmdbFile::Run(unsigned flags, absl::FunctionRef<absl::Status(MDB_txn*)> body) {
  for (bool is_mapped_anew = false;; is_mapped_anew = true) {
    {
      absl::ReaderMutexLock lock(&map_mutex_);
      MDB_txn* txn = nullptr;
      const int begun = mdb_txn_begin(env_, nullptr, flags, &txn);
      if (begun == 0) {
        absl::Cleanup abort = [txn] { mdb_txn_abort(txn); };
        RETURN_IF_ERROR(body(txn));
        std::move(abort).Cancel();
        const int code = mdb_txn_commit(txn);
        return code == 0 ? absl::OkStatus() : LmdbError(code, path_);
      }
      if (begun != MDB_MAP_RESIZED || is_mapped_anew) return LmdbError(begun, path_);
    }
    absl::MutexLock lock(&map_mutex_);
    const int code = mdb_env_set_mapsize(env_, 0);
    if (code != 0) return LmdbError(code, path_);
  }
}

}  // namespace tandem
