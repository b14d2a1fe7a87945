#include "kvcache/store/lmdb_file.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// LMDB trusts the file that it maps: a flipped bit in an index page, or a truncated file, would
// crash the process. CheckLmdbRoots and CheckLmdbPages decide whether a file is safe to use (format
// of LMDB 0.9). Errors are DATA_LOSS and name the page.

// ---- The format, as mdb.c of LMDB 0.9 declares it ----

constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kFormat = 1;
constexpr int kNumRoots = 2;
constexpr int kDeepest = 32;
constexpr size_t kLongestKey = 511;

enum PageFlags : uint16_t { kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08 };
enum NodeFlags : uint16_t { kBigData = 0x01, kSubData = 0x02 };

struct PageHeader {
  uint64_t number;
  uint16_t pad;
  uint16_t flags;
  uint16_t lower;  // in an overflow page, `lower` and `upper` together are its number of pages
  uint16_t upper;
  uint32_t num_pages() const { return lower | uint32_t{upper} << 16; }
};
struct NodeHeader {
  uint16_t low;
  uint16_t high;
  uint16_t flags;
  uint16_t key_size;
  uint32_t data_size() const { return low | uint32_t{high} << 16; }
  uint64_t child() const { return data_size() | uint64_t{flags} << 32; }
};
struct Table {
  uint32_t pad;  // the page size, in the `free` table of a root
  uint16_t flags;
  uint16_t depth;
  uint64_t branch_pages, leaf_pages, overflow_pages, entries;
  uint64_t root;
};
struct Root {
  uint32_t magic;
  uint32_t format;
  uint64_t address, map_size;
  Table free, main;
  uint64_t last_page;
  uint64_t transaction;
};
static_assert(sizeof(PageHeader) == 16 && sizeof(NodeHeader) == 8 && sizeof(Table) == 48 &&
              sizeof(Root) == 136);

constexpr uint16_t kIntegerKeys = MDB_INTEGERKEY;
// Flags of the environment that a root may store with the flags of its `free` table.
constexpr uint16_t kMayBeSet = MDB_NOSUBDIR;

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": is damaged: ", what));
}

// A file that is read with pread: access to a mapping of a truncated file would crash the process.
class File {
 public:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  absl::Status Read(uint64_t at, void* into, size_t size) const {
    if (pread(descriptor_, into, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size)) {
      return absl::OkStatus();
    }
    return Damaged(path_, absl::StrCat("ends before byte ", at + size));
  }

  // Reads and checks one of the two roots.
  absl::StatusOr<Root> ReadRoot(int index, uint32_t page_size) const {
    struct {
      PageHeader header;
      Root root;
    } page;
    RETURN_IF_ERROR(Read(index * uint64_t{page_size}, &page, sizeof(page)));
    const Root& root = page.root;
    struct stat info = {};
    const uint64_t size = fstat(descriptor_, &info) == 0 ? info.st_size : 0;
    const bool is_right = page.header.number == static_cast<uint64_t>(index) &&
                          page.header.flags == kMeta && root.magic == kMagic &&
                          root.format == kFormat && root.free.pad == page_size &&
                          (root.free.flags & ~kMayBeSet) == kIntegerKeys && root.main.flags == 0 &&
                          root.main.pad == 0 && root.last_page < size / page_size;
    if (!is_right) return Damaged(path_, absl::StrCat("root ", index));
    return root;
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int descriptor_;
};

// Walks the pages of a snapshot and checks that each is used at most once.
class Walk {
 public:
  Walk(const File& file, const Root& root)
      : file_(file), page_size_(root.free.pad), used_(root.last_page + 1) {}

  absl::Status CheckAll(const Root& root) {
    for (uint64_t page = 0; page < kNumRoots && page < used_.size(); ++page) used_[page] = true;
    RETURN_IF_ERROR(CheckTable(root.main, [&](const NodeHeader& node, absl::string_view data) {
      return CheckNamedTable(node, data);
    }));
    RETURN_IF_ERROR(CheckTable(root.free, [&](const NodeHeader& node, absl::string_view data) {
      return CheckFreePages(node, data);
    }));
    for (const auto& [page, num_pages] : overflows_) {
      PageHeader header;
      RETURN_IF_ERROR(file_.Read(page * page_size_, &header, sizeof(header)));
      if (header.number != page || header.flags != kOverflow || header.num_pages() != num_pages) {
        return Broken(page);
      }
    }
    return absl::OkStatus();
  }

 private:
  using OnNode = absl::FunctionRef<absl::Status(const NodeHeader&, absl::string_view data)>;

  absl::Status Broken(uint64_t page) const {
    return Damaged(file_.path(), absl::StrCat("page ", page));
  }

  absl::Status Claim(uint64_t page, uint64_t count = 1) {
    if (page >= used_.size() || count > used_.size() - page) return Broken(page);
    for (uint64_t i = page; i < page + count; ++i) {
      if (used_[i]) return Broken(i);
      used_[i] = true;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTable(const Table& table, OnNode on_leaf) {
    if (table.root == kNoPage) return absl::OkStatus();
    if (table.depth == 0 || table.depth >= kDeepest) return Broken(table.root);
    return CheckPage(table.root, table.depth, on_leaf);
  }

  // `height` is that of the tree below and including this page: 1 for a leaf.
  absl::Status CheckPage(uint64_t page, int height, OnNode on_leaf) {
    RETURN_IF_ERROR(Claim(page));
    std::vector<char> bytes(page_size_);
    RETURN_IF_ERROR(file_.Read(page * page_size_, bytes.data(), bytes.size()));
    PageHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const bool is_leaf = height == 1;
    if (header.number != page || header.flags != (is_leaf ? kLeaf : kBranch) ||
        header.lower <= sizeof(header) || header.lower % 2 != 0 || header.lower > header.upper ||
        header.upper > page_size_) {
      return Broken(page);
    }
    size_t num_bytes = 0;  // of the nodes, which must fill the page's end without a gap
    for (size_t at = sizeof(header); at < header.lower; at += sizeof(uint16_t)) {
      uint16_t offset = 0;
      std::memcpy(&offset, bytes.data() + at, sizeof(offset));
      NodeHeader node;
      if (offset < header.upper || offset % 2 != 0 || offset + sizeof(node) > page_size_) {
        return Broken(page);
      }
      std::memcpy(&node, bytes.data() + offset, sizeof(node));
      const bool is_far = is_leaf && (node.flags & kBigData) != 0;
      const size_t data_size = !is_leaf ? 0 : is_far ? sizeof(uint64_t) : node.data_size();
      const size_t size = sizeof(node) + node.key_size + data_size;
      if (node.key_size > kLongestKey || offset + size > page_size_) return Broken(page);
      num_bytes += size + size % 2;
      if (!is_leaf) {
        RETURN_IF_ERROR(CheckPage(node.child(), height - 1, on_leaf));
        continue;
      }
      const char* data = bytes.data() + offset + sizeof(node) + node.key_size;
      if (is_far) RETURN_IF_ERROR(ClaimOverflow(node, data));
      RETURN_IF_ERROR(on_leaf(node, {data, data_size}));
    }
    return num_bytes == page_size_ - header.upper ? absl::OkStatus() : Broken(page);
  }

  // Claims the overflow pages of a large value. The number of the first one is at `data`.
  absl::Status ClaimOverflow(const NodeHeader& node, const char* data) {
    uint64_t first = 0;
    std::memcpy(&first, data, sizeof(first));
    const uint64_t count =
        (sizeof(PageHeader) + uint64_t{node.data_size()} + page_size_ - 1) / page_size_;
    overflows_.emplace_back(first, count);
    return Claim(first, count);
  }

  absl::Status CheckNamedTable(const NodeHeader& node, absl::string_view data) {
    Table table;
    if (node.flags != kSubData || data.size() != sizeof(table)) {
      return Damaged(file_.path(), "the list of tables");
    }
    std::memcpy(&table, data.data(), sizeof(table));
    if (table.flags != 0 || table.pad != 0) return Broken(table.root);
    return CheckTable(table, [this](const NodeHeader& entry, absl::string_view /*data*/) {
      return (entry.flags & ~kBigData) == 0 ? absl::OkStatus()
                                            : Damaged(file_.path(), "an entry of a table");
    });
  }

  // Checks a list of reusable pages: their count, then their numbers in descending order.
  absl::Status CheckFreePages(const NodeHeader& node, absl::string_view data) {
    std::vector<uint64_t> pages(node.data_size() / sizeof(uint64_t));
    const size_t num_bytes = pages.size() * sizeof(uint64_t);
    if ((node.flags & kBigData) != 0) {
      const uint64_t first = overflows_.back().first;
      RETURN_IF_ERROR(file_.Read(first * page_size_ + sizeof(PageHeader), pages.data(), num_bytes));
    } else if (num_bytes > 0) {
      std::memcpy(pages.data(), data.data(), num_bytes);
    }
    if ((node.flags & ~kBigData) != 0 || node.key_size != sizeof(uint64_t) || pages.empty() ||
        pages[0] >= pages.size()) {
      return Damaged(file_.path(), "the list of free pages");
    }
    for (uint64_t i = 1; i <= pages[0]; ++i) {
      if (i > 1 && pages[i] >= pages[i - 1]) return Broken(pages[i]);
      RETURN_IF_ERROR(Claim(pages[i]));
    }
    return absl::OkStatus();
  }

  const File& file_;
  const size_t page_size_;
  std::vector<bool> used_;                                // [pages of the file]
  std::vector<std::pair<uint64_t, uint64_t>> overflows_;  // first page, number of pages
};

// Checks the two roots before LMDB opens the file. A missing or empty file is valid.
absl::Status CheckLmdbRoots(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::OkStatus();  // opening the environment reports the error
  absl::Cleanup closing = [descriptor] { close(descriptor); };
  struct stat info = {};
  if (fstat(descriptor, &info) != 0 || info.st_size == 0) return absl::OkStatus();
  const File file(path, descriptor);
  const auto page_size = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < kNumRoots; ++i) RETURN_IF_ERROR(file.ReadRoot(i, page_size).status());
  return absl::OkStatus();
}

// Checks every index page, and the positions of values, after LMDB has opened the file. The bytes
// of values have checksums, which are verified when they are read. Other processes may write in the
// meantime.
absl::Status CheckLmdbPages(MDB_env* env, const std::string& path) {
  int descriptor = -1;
  MDB_txn* txn = nullptr;
  if (mdb_env_get_fd(env, &descriptor) != 0 || mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn) != 0) {
    return Damaged(path, "cannot be read");
  }
  absl::Cleanup abort = [txn] { mdb_txn_abort(txn); };
  const File file(path, descriptor);
  const auto page_size = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  // Transactions write the two roots alternately, so another process may have overwritten this one
  // since.
  constexpr int kMaxTries = 100;
  for (int i = 0; i < kMaxTries; ++i) {
    const uint64_t transaction = mdb_txn_id(txn);
    ASSIGN_OR_RETURN(const Root root, file.ReadRoot(transaction % kNumRoots, page_size));
    if (root.transaction == transaction) return Walk(file, root).CheckAll(root);
    mdb_txn_reset(txn);
    if (mdb_txn_renew(txn) != 0) break;
  }
  return Damaged(path, "neither root belongs to its last transaction");
}

namespace fs = std::filesystem;

// Each version of the format has its own file.
constexpr char kFileName[] = "pages-1.mdb";
constexpr char kOpenLock[] = "open.lock";
constexpr mode_t kFileMode = 0600;  // pages contain the tokens of prompts
constexpr unsigned kMaxTables = 4;

bool IsDenied(int code) { return code == EACCES || code == EPERM || code == EROFS; }

// Held while a file is opened, so that only one process at a time checks and replaces it. Not
// needed, and not held, if the folder cannot be written.
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

// Gives the lock file its blocks: LMDB writes to its mapping, which would end the process if the
// disk were full.
absl::Status AllocateLockFile(const std::string& path) {
  constexpr off_t kLockBytes = 8192;  // as LMDB makes it
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
  if (descriptor < 0) return absl::OkStatus();  // opening the environment reports the error
  const bool fits = fallocate(descriptor, 0, 0, kLockBytes) == 0 || errno == EOPNOTSUPP;
  absl::Status status = fits ? absl::OkStatus() : LmdbError(errno, path);
  close(descriptor);
  return status;
}

constexpr char kPoolsTable[] = "kv store: pools";

std::string KeyOf(uint32_t number) { return absl::StrCat(BytesOf(htobe32(number))); }

}  // namespace

absl::Status LmdbError(int code, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", mdb_strerror(code));
  if (code == MDB_MAP_FULL || code == ENOSPC || code == EDQUOT || code == EFBIG) {
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
    Log(LogLevel::kWarning, absl::StrCat(status.message(), "; starting with an empty store"));
    file.reset();
    // Processes that have the old file open keep using it; later ones open the new file. Each file
    // has its own lock file.
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
    if (code == 0) code = mdb_env_set_maxdbs(env_, kMaxTables);
    if (code == 0) code = mdb_env_set_mapsize(env_, static_cast<size_t>(max_bytes));
    // MDB_NOMETASYNC: a machine that stops loses only the last pages.
    if (code == 0) {
      code = mdb_env_open(env_, path_.c_str(), MDB_NOSUBDIR | MDB_NOTLS | MDB_NOMETASYNC | flags,
                          kFileMode);
    }
    return code;
  };
  RETURN_IF_ERROR(AllocateLockFile(path_ + "-lock"));
  int code = open(0);
  if (IsDenied(code)) {
    is_read_only_ = true;
    code = open(MDB_RDONLY);
    // The lock file cannot be written either, so readers cannot register there. Then rely on the
    // folder's permissions: no process writes.
    if (IsDenied(code)) code = open(MDB_RDONLY | MDB_NOLOCK);
  }
  if (code != 0) return LmdbError(code, path_);
  if (!is_read_only_) {
    int num_dead = 0;  // killed readers would keep old pages from being reused
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
    return absl::PermissionDeniedError(absl::StrCat(path_, ": is read-only"));
  }
  return Run(0, body);
}

int LmdbFile::CodeOfShortWrite() const {
  constexpr off_t kPageBytes = 4096;
  int descriptor = -1;
  struct stat info = {};
  if (mdb_env_get_fd(env_, &descriptor) != 0 || fstat(descriptor, &info) != 0) return EIO;
  const bool can_grow = fallocate(descriptor, 0, info.st_size, kPageBytes) == 0;
  return can_grow || errno == EOPNOTSUPP ? EIO : errno;
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
        int code = mdb_txn_commit(txn);
        if (code == EIO) code = CodeOfShortWrite();
        return code == 0 ? absl::OkStatus() : LmdbError(code, path_);
      }
      if (begun != MDB_MAP_RESIZED || is_mapped_anew) return LmdbError(begun, path_);
    }
    absl::MutexLock lock(&map_mutex_);
    const int code = mdb_env_set_mapsize(env_, 0);
    if (code != 0) return LmdbError(code, path_);
  }
}

absl::Status PoolTable::Load() {
  MDB_cursor* cursor = nullptr;
  if (const int code = mdb_cursor_open(txn_, table_, &cursor); code != 0) {
    return LmdbError(code, kPoolsTable);
  }
  MDB_val key, value;
  while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
    uint32_t number = 0;
    Pool pool;
    if (!ReadRecord(key, &number) || !ReadRecord(value, &pool.record)) continue;
    pool.description = std::string(ViewOf(value).substr(sizeof(Record)));
    pools_[be32toh(number)] = std::move(pool);
  }
  mdb_cursor_close(cursor);
  return absl::OkStatus();
}

absl::Status PoolTable::Store() {
  for (const auto& [number, pool] : pools_) {
    const std::string key = KeyOf(number);
    const std::string value = absl::StrCat(BytesOf(pool.record), pool.description);
    MDB_val key_value = ValueOf(key), data = ValueOf(value);
    const int code = mdb_put(txn_, table_, &key_value, &data, 0);
    if (code != 0) return LmdbError(code, kPoolsTable);
  }
  return absl::OkStatus();
}

std::optional<uint32_t> PoolTable::Find(const PoolId& id) const {
  for (const auto& [number, pool] : pools_) {
    if (pool.record.id == id) return number;
  }
  return std::nullopt;
}

uint32_t PoolTable::NumberOf(const PoolInfo& info) {
  const uint32_t next = pools_.empty() ? 0 : pools_.rbegin()->first + 1;
  const uint32_t number = Find(info.id).value_or(next);
  Pool& pool = pools_[number];
  pool.record.id = info.id;
  pool.description = info.description;
  if (info.tokens_per_second > 0) pool.record.tokens_per_second = info.tokens_per_second;
  return number;
}

void PoolTable::Count(uint32_t number, int pages, int64_t bytes_each) {
  Record& record = pools_[number].record;
  record.pages += pages;
  record.bytes += pages * bytes_each;
}

void PoolTable::AddHits(const PoolId& id, int64_t hits) {
  if (const std::optional<uint32_t> number = Find(id)) pools_[*number].record.hits += hits;
}

absl::Status PoolTable::RemoveEmpty() {
  for (auto it = pools_.begin(); it != pools_.end();) {
    if (it->second.record.pages > 0) {
      ++it;
      continue;
    }
    const std::string key = KeyOf(it->first);
    MDB_val key_value = ValueOf(key);
    const int code = mdb_del(txn_, table_, &key_value, nullptr);
    if (code != 0 && code != MDB_NOTFOUND) return LmdbError(code, kPoolsTable);
    it = pools_.erase(it);
  }
  return absl::OkStatus();
}

int64_t PoolTable::bytes() const {
  int64_t bytes = 0;
  for (const auto& [number, pool] : pools_) bytes += pool.record.bytes;
  return bytes;
}

std::vector<PoolInfo> PoolTable::Infos() const {
  std::vector<PoolInfo> infos;
  for (const auto& [number, pool] : pools_) {
    const Record& record = pool.record;
    infos.push_back({.id = record.id,
                     .description = pool.description,
                     .pages = record.pages,
                     .bytes = record.bytes,
                     .hits = record.hits,
                     .last_used = absl::FromUnixMicros(static_cast<int64_t>(record.last_used)),
                     .tokens_per_second = record.tokens_per_second});
  }
  return infos;
}

}  // namespace tandem
