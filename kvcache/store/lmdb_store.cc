#include "kvcache/store/lmdb_store.h"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
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
#include "kvcache/store/lmdb_file.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

// ---- Records, in the byte order of the machine: a store is not portable ----

// Precedes a page's tokens and bytes.
struct PageHead {
  uint64_t checksum;  // of the key, the tokens and the bytes
  uint64_t num_tokens;
};

// A page's entry in the order of use.
struct Use {
  uint64_t stamp;  // Unix time in microseconds, but never less than an earlier stamp
  uint32_t depth;
  uint32_t pool;   // the pool's number
  uint64_t bytes;  // that the page occupies in the file
};

constexpr int64_t kFilePage = 4096;
// Approximate size of a page's index entries.
constexpr int64_t kIndexBytes = 256;
// The part of the file left for the indexes, for pages that are being replaced, and for gaps.
constexpr int64_t kShareForOther = 8;  // an eighth
// A run is marked as used at most once in this time.
constexpr uint64_t kTouchMicroseconds = 60'000'000;
// Pages removed in one transaction.
constexpr int kPagesAtOnce = 1000;
// Read-ahead from the disk, in pages.
constexpr int kReadAhead = 4;

absl::string_view TextOf(const PageKey& key) { return BytesOf(key.bytes); }

// Returns a page's key in the order of use: the least recent first, and among equal stamps the last
// page of a text first.
std::string OrderKey(uint64_t stamp, uint32_t depth, const PageKey& key) {
  return absl::StrCat(BytesOf(htobe64(stamp)), BytesOf(htobe32(~depth)), TextOf(key));
}
constexpr size_t kOrderKeyBytes = sizeof(uint64_t) + sizeof(uint32_t) + sizeof(PageKey);

uint64_t StampIn(absl::string_view order_key) {
  uint64_t stamp = 0;
  std::memcpy(&stamp, order_key.data(), sizeof(stamp));
  return be64toh(stamp);
}

uint64_t ChecksumOf(const PageKey& key, absl::string_view rest) {
  return XXH3_64bits_withSeed(rest.data(), rest.size(),
                              XXH3_64bits(key.bytes.data(), key.bytes.size()));
}

size_t ValueBytes(size_t num_tokens, size_t page_bytes) {
  return sizeof(PageHead) + num_tokens * sizeof(TokenId) + page_bytes;
}

int64_t BytesInFile(size_t value_bytes) {
  return (static_cast<int64_t>(value_bytes) + kFilePage) / kFilePage * kFilePage + kIndexBytes;
}

// Returns how many of the first pages fit into `limit` bytes, at least one, and their bytes in a
// file.
std::pair<size_t, int64_t> Fitting(absl::Span<const PageToWrite> pages, int64_t limit) {
  size_t count = 0;
  int64_t bytes = 0;
  for (const PageToWrite& page : pages) {
    const int64_t more = BytesInFile(ValueBytes(page.page.tokens.size(), page.bytes.size()));
    if (count > 0 && bytes + more > limit) break;
    bytes += more;
    ++count;
  }
  return {count, bytes};
}

class LmdbStore final : public PageStore {
 public:
  LmdbStore(std::unique_ptr<LmdbFile> file, std::function<absl::Time()> now)
      : file_(std::move(file)), now_(now == nullptr ? absl::Now : std::move(now)) {
    stats_.pages_damaged += file_->is_replaced();
  }

  ~LmdbStore() override {
    if (!HasNewHits()) return;
    const auto add_hits = [this](MDB_txn* txn) -> absl::Status {
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      AddHits(&pools);
      return pools.Store();
    };
    file_->Write(add_hits).IgnoreError();
  }

  int Find(absl::Span<const PageRef> run) override {
    int num_found = 0;
    const absl::Status status = file_->Read([&](MDB_txn* txn) {
      Use use;
      for (const PageRef& page : run) {
        if (!GetUse(txn, page.key, &use)) break;
        ++num_found;
      }
      return absl::OkStatus();
    });
    return status.ok() ? num_found : 0;
  }

  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    int num_read = 0;
    bool is_damaged = false;
    for (int i = 0; i < static_cast<int>(run.size()); ++i) {
      bool is_taken = false;
      const absl::Status status = file_->Read([&](MDB_txn* txn) {
        // Use a transaction for each page: a long one would keep replaced pages from being reused.
        if (i % kReadAhead == 0) AskFor(txn, run.subspan(i, 2 * kReadAhead));
        MDB_val value;
        if (!GetPage(txn, run[i].key, &value)) return absl::OkStatus();
        const absl::Span<const std::byte> bytes = BytesIn(run[i], page_bytes, value);
        is_damaged = bytes.empty();
        if (!is_damaged) is_taken = take(i, bytes);
        return absl::OkStatus();
      });
      if (!status.ok() || !is_taken) break;
      ++num_read;
    }
    if (is_damaged) {
      // If it cannot be removed, it is found damaged again.
      RemoveDamaged(run[num_read].key).IgnoreError();
    }
    absl::MutexLock lock(&mutex_);
    stats_.pages_damaged += is_damaged;
    stats_.pages_read += num_read;
    stats_.bytes_read += num_read * static_cast<int64_t>(page_bytes);
    if (num_read > 0) new_hits_[pool] += num_read;
    return num_read;
  }

  absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) override {
    const int64_t most = file_->max_bytes() - file_->max_bytes() / kShareForOther;
    absl::Status status;
    bool is_full = false;
    // Gaps may be too small for a page, so each try takes less room.
    constexpr int kMaxTries = 4;
    for (int i = 0; i < kMaxTries; ++i) {
      const int64_t limit = most - i * most / kShareForOther;
      const auto [num_fitting, wanted] = Fitting(pages, limit);
      if (wanted > most) {
        return absl::ResourceExhaustedError(
            absl::StrCat("kv store: a page of ", wanted, " bytes exceeds the limit of ", most));
      }
      ASSIGN_OR_RETURN(int64_t num_evicted, MakeRoom(limit - wanted));
      num_evicted += static_cast<int64_t>(pages.size() - num_fitting);
      pages = pages.first(num_fitting);
      is_full = is_full || num_evicted > 0;
      {
        absl::MutexLock lock(&mutex_);
        stats_.pages_evicted += num_evicted;
      }
      int64_t num_written = 0;
      // LMDB does not reuse pages in the transaction after the one that freed them.
      if (i > 0) WriteAll(pool, {}, is_full, &num_written).IgnoreError();
      status = WriteAll(pool, pages, is_full, &num_written);
      if (status.ok()) {
        absl::MutexLock lock(&mutex_);
        stats_.pages_written += num_written;
        if (!pages.empty()) {
          stats_.bytes_written += num_written * static_cast<int64_t>(pages[0].bytes.size());
        }
        return status;
      }
      if (!absl::IsResourceExhausted(status)) break;
    }
    return status;
  }

  void Touch(absl::Span<const PageRef> run) override {
    std::vector<Use> uses;
    uint64_t stamp = 0;
    const auto look = [&](MDB_txn* txn) {
      uses.clear();
      Use use;
      while (uses.size() < run.size() && GetUse(txn, run[uses.size()].key, &use)) {
        uses.push_back(use);
      }
      stamp = NextStamp(txn);
      return absl::OkStatus();
    };
    const auto is_old = [&] {
      return !uses.empty() && uses.back().stamp + kTouchMicroseconds <= stamp;
    };
    if (!file_->Read(look).ok() || !is_old()) return;
    const auto mark = [&](MDB_txn* txn) -> absl::Status {
      RETURN_IF_ERROR(look(txn));
      if (!is_old()) return absl::OkStatus();
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      AddHits(&pools);
      for (size_t i = 0; i < uses.size(); ++i) {
        RETURN_IF_ERROR(Restamp(txn, run[i].key, uses[i], stamp));
      }
      pools.MarkUsed(uses.back().pool, stamp);
      return pools.Store();
    };
    file_->Write(mark).IgnoreError();  // a run that is evicted too early is only a miss
  }

  absl::StatusOr<std::vector<PoolInfo>> Pools() override {
    std::vector<PoolInfo> infos;
    RETURN_IF_ERROR(file_->Read([&](MDB_txn* txn) {
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      infos = pools.Infos();
      return absl::OkStatus();
    }));
    absl::MutexLock lock(&mutex_);
    for (PoolInfo& info : infos) {
      const auto hits = new_hits_.find(info.id);
      if (hits != new_hits_.end()) info.hits += hits->second;
    }
    return infos;
  }

  absl::StatusOr<int64_t> RemovePool(const PoolId& pool) override {
    ASSIGN_OR_RETURN(const std::vector<PageKey> keys, KeysOf(pool));
    int64_t num_removed = 0;
    for (size_t at = 0; at < keys.size(); at += kPagesAtOnce) {
      RETURN_IF_ERROR(file_->Write([&](MDB_txn* txn) {
        PoolTable pools(*file_, txn);
        RETURN_IF_ERROR(pools.Load());
        for (const PageKey& key : absl::MakeConstSpan(keys).subspan(at, kPagesAtOnce)) {
          Use use;
          if (!GetUse(txn, key, &use)) continue;
          RETURN_IF_ERROR(Remove(txn, key, use, &pools));
          ++num_removed;
        }
        RETURN_IF_ERROR(pools.RemoveEmpty());
        return pools.Store();
      }));
    }
    return num_removed;
  }

  absl::StatusOr<int64_t> RemoveOlderThan(absl::Time time) override {
    const int64_t micros = absl::ToUnixMicros(time);
    return RemoveLeastRecent(
        [&](const PoolTable&, uint64_t stamp) { return static_cast<int64_t>(stamp) < micros; });
  }

  StoreStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  bool Get(MDB_txn* txn, MDB_dbi table, const PageKey& key, MDB_val* value) const {
    MDB_val key_value = ValueOf(TextOf(key));
    return mdb_get(txn, table, &key_value, value) == 0;
  }
  bool GetPage(MDB_txn* txn, const PageKey& key, MDB_val* value) const {
    return Get(txn, file_->pages(), key, value);
  }
  bool GetUse(MDB_txn* txn, const PageKey& key, Use* use) const {
    MDB_val value;
    return Get(txn, file_->uses(), key, &value) && ReadRecord(value, use);
  }

  static absl::Status Put(MDB_txn* txn, MDB_dbi table, absl::string_view key,
                          absl::string_view value) {
    MDB_val key_value = ValueOf(key), data = ValueOf(value);
    const int code = mdb_put(txn, table, &key_value, &data, 0);
    return code == 0 ? absl::OkStatus() : LmdbError(code, "kv store");
  }
  static absl::Status Delete(MDB_txn* txn, MDB_dbi table, absl::string_view key) {
    MDB_val key_value = ValueOf(key);
    const int code = mdb_del(txn, table, &key_value, nullptr);
    return code == 0 || code == MDB_NOTFOUND ? absl::OkStatus() : LmdbError(code, "kv store");
  }

  // Asks the kernel to start reading these pages.
  void AskFor(MDB_txn* txn, absl::Span<const PageRef> run) const {
    for (const PageRef& page : run) {
      MDB_val value;
      if (!GetPage(txn, page.key, &value)) return;
      const auto address = reinterpret_cast<uintptr_t>(value.mv_data);
      const uintptr_t begin = address / kFilePage * kFilePage;
      madvise(reinterpret_cast<void*>(begin), address + value.mv_size - begin, MADV_WILLNEED);
    }
  }

  // Returns the bytes of a page, or an empty span if it is not what was written.
  static absl::Span<const std::byte> BytesIn(const PageRef& page, size_t page_bytes,
                                             const MDB_val& value) {
    PageHead head;
    if (!ReadRecord(value, &head)) return {};
    const absl::string_view rest = ViewOf(value).substr(sizeof(head));
    const absl::string_view tokens =
        View(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(page.tokens.data()),
                                 page.tokens.size() * sizeof(TokenId)));
    const bool is_intact = value.mv_size == ValueBytes(page.tokens.size(), page_bytes) &&
                           head.num_tokens == page.tokens.size() &&
                           rest.substr(0, tokens.size()) == tokens &&
                           ChecksumOf(page.key, rest) == head.checksum;
    if (!is_intact) return {};
    return {reinterpret_cast<const std::byte*>(rest.data()) + tokens.size(), page_bytes};
  }

  // Returns a stamp after all earlier ones, even if the clock was set back.
  uint64_t NextStamp(MDB_txn* txn) const {
    const auto now = static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixMicros(now_()), 0));
    MDB_cursor* cursor = nullptr;
    if (mdb_cursor_open(txn, file_->order(), &cursor) != 0) return now;
    MDB_val key, value;
    const bool is_found = mdb_cursor_get(cursor, &key, &value, MDB_LAST) == 0;
    const uint64_t last = is_found && key.mv_size == kOrderKeyBytes ? StampIn(ViewOf(key)) : 0;
    mdb_cursor_close(cursor);
    return std::max(now, last + 1);
  }

  absl::Status PutUse(MDB_txn* txn, const PageKey& key, const Use& use) const {
    RETURN_IF_ERROR(Put(txn, file_->uses(), TextOf(key), BytesOf(use)));
    return Put(txn, file_->order(), OrderKey(use.stamp, use.depth, key), "");
  }
  absl::Status Restamp(MDB_txn* txn, const PageKey& key, Use use, uint64_t stamp) const {
    RETURN_IF_ERROR(Delete(txn, file_->order(), OrderKey(use.stamp, use.depth, key)));
    use.stamp = stamp;
    return PutUse(txn, key, use);
  }

  absl::Status Remove(MDB_txn* txn, const PageKey& key, const Use& use, PoolTable* pools) const {
    RETURN_IF_ERROR(Delete(txn, file_->pages(), TextOf(key)));
    RETURN_IF_ERROR(Delete(txn, file_->uses(), TextOf(key)));
    RETURN_IF_ERROR(Delete(txn, file_->order(), OrderKey(use.stamp, use.depth, key)));
    pools->Count(use.pool, -1, static_cast<int64_t>(use.bytes));
    return absl::OkStatus();
  }

  absl::Status RemoveDamaged(const PageKey& key) {
    return file_->Write([&](MDB_txn* txn) {
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      Use use;
      if (GetUse(txn, key, &use)) RETURN_IF_ERROR(Remove(txn, key, use, &pools));
      RETURN_IF_ERROR(Delete(txn, file_->pages(), TextOf(key)));
      return pools.Store();
    });
  }

  absl::Status PutPage(MDB_txn* txn, const PageToWrite& page) const {
    const absl::Span<const TokenId> tokens = page.page.tokens;
    MDB_val key = ValueOf(TextOf(page.page.key));
    MDB_val value = {.mv_size = ValueBytes(tokens.size(), page.bytes.size()), .mv_data = nullptr};
    const int code = mdb_put(txn, file_->pages(), &key, &value, MDB_RESERVE);
    if (code != 0) return LmdbError(code, "kv store");
    char* const at = static_cast<char*>(value.mv_data);
    char* const rest = at + sizeof(PageHead);
    std::memcpy(rest, tokens.data(), tokens.size() * sizeof(TokenId));
    std::memcpy(rest + tokens.size() * sizeof(TokenId), page.bytes.data(), page.bytes.size());
    const PageHead head = {
        .checksum = ChecksumOf(page.page.key, {rest, value.mv_size - sizeof(PageHead)}),
        .num_tokens = tokens.size()};
    std::memcpy(at, &head, sizeof(head));
    return absl::OkStatus();
  }

  // If the store `is_full`, leaves out pages that follow none of its pages.
  absl::Status WriteAll(const PoolInfo& pool, absl::Span<const PageToWrite> pages, bool is_full,
                        int64_t* num_written) {
    return file_->Write([&](MDB_txn* txn) {
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      AddHits(&pools);
      const uint32_t number = pools.NumberOf(pool);
      const uint64_t stamp = NextStamp(txn);
      pools.MarkUsed(number, stamp);
      std::string first;
      RETURN_IF_ERROR(FirstInOrder(txn, &first));
      const uint64_t oldest = first.empty() ? stamp : StampIn(first);
      for (const PageToWrite& page : pages) {
        Use use;
        if (GetUse(txn, page.page.key, &use)) continue;
        use = {.stamp = stamp,
               .depth = static_cast<uint32_t>(page.page.depth),
               .pool = number,
               .bytes = static_cast<uint64_t>(
                   BytesInFile(ValueBytes(page.page.tokens.size(), page.bytes.size())))};
        // Takes the stamp of the page before it, so that it is not kept longer than that page. A
        // page without one is found only while memory has that one: it takes no other page's room.
        if (Use parent; page.page.depth > 0) {
          const bool has_parent = GetUse(txn, page.parent, &parent);
          if (!has_parent && is_full) continue;
          use.stamp = has_parent ? parent.stamp : oldest;
        }
        RETURN_IF_ERROR(PutPage(txn, page));
        RETURN_IF_ERROR(PutUse(txn, page.page.key, use));
        pools.Count(number, 1, static_cast<int64_t>(use.bytes));
        ++*num_written;
      }
      return pools.Store();
    });
  }

  // Removes the least recently used pages until the rest have at most `most_bytes`. Returns the
  // number of pages removed.
  absl::StatusOr<int64_t> MakeRoom(int64_t most_bytes) {
    return RemoveLeastRecent(
        [&](const PoolTable& pools, uint64_t /*stamp*/) { return pools.bytes() > most_bytes; });
  }

  // Removes the least recently used pages while `leaves(pools, stamp)` is true for the next one.
  // Returns the number of pages removed.
  absl::StatusOr<int64_t> RemoveLeastRecent(
      absl::FunctionRef<bool(const PoolTable&, uint64_t stamp)> leaves) {
    int64_t num_removed = 0;
    for (bool is_done = false; !is_done;) {
      int num_here = 0;
      RETURN_IF_ERROR(file_->Write([&](MDB_txn* txn) -> absl::Status {
        PoolTable pools(*file_, txn);
        RETURN_IF_ERROR(pools.Load());
        while (num_here < kPagesAtOnce) {
          std::string first;
          RETURN_IF_ERROR(FirstInOrder(txn, &first));
          is_done = first.empty() || !leaves(pools, StampIn(first));
          if (is_done) break;
          PageKey key;
          std::memcpy(key.bytes.data(), first.data() + first.size() - sizeof(key), sizeof(key));
          Use use;
          if (GetUse(txn, key, &use)) RETURN_IF_ERROR(Remove(txn, key, use, &pools));
          RETURN_IF_ERROR(Delete(txn, file_->order(), first));
          ++num_here;
        }
        if (num_here == 0) return absl::OkStatus();
        RETURN_IF_ERROR(pools.RemoveEmpty());
        return pools.Store();
      }));
      num_removed += num_here;
    }
    return num_removed;
  }

  absl::Status FirstInOrder(MDB_txn* txn, std::string* order_key) const {
    MDB_cursor* cursor = nullptr;
    if (const int code = mdb_cursor_open(txn, file_->order(), &cursor); code != 0) {
      return LmdbError(code, "kv store");
    }
    MDB_val key, value;
    if (mdb_cursor_get(cursor, &key, &value, MDB_FIRST) == 0) {
      *order_key = std::string(ViewOf(key));
    }
    mdb_cursor_close(cursor);
    if (order_key->empty() || order_key->size() == kOrderKeyBytes) return absl::OkStatus();
    return absl::DataLossError("kv store: the order of use is damaged");
  }

  absl::StatusOr<std::vector<PageKey>> KeysOf(const PoolId& id) {
    std::vector<PageKey> keys;
    RETURN_IF_ERROR(file_->Read([&](MDB_txn* txn) {
      PoolTable pools(*file_, txn);
      RETURN_IF_ERROR(pools.Load());
      const std::optional<uint32_t> number = pools.Find(id);
      MDB_cursor* cursor = nullptr;
      if (const int code = mdb_cursor_open(txn, file_->uses(), &cursor); code != 0) {
        return LmdbError(code, "kv store");
      }
      MDB_val key, value;
      while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        Use use;
        PageKey page;
        if (!ReadRecord(key, &page) || !ReadRecord(value, &use) || use.pool != number) continue;
        keys.push_back(page);
      }
      mdb_cursor_close(cursor);
      return absl::OkStatus();
    }));
    return keys;
  }

  bool HasNewHits() const {
    absl::MutexLock lock(&mutex_);
    return !new_hits_.empty();
  }
  void AddHits(PoolTable* pools) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, hits] : new_hits_) pools->AddHits(id, hits);
    new_hits_.clear();
  }

  const std::unique_ptr<LmdbFile> file_;
  const std::function<absl::Time()> now_;
  mutable absl::Mutex mutex_;
  StoreStats stats_ ABSL_GUARDED_BY(mutex_);
  HashMap<PoolId, int64_t> new_hits_ ABSL_GUARDED_BY(mutex_);  // not in the file yet
};

// The stores that this process has open. LMDB requires that a process opens each file only once.
struct OpenStores {
  absl::Mutex mutex;
  std::map<std::string, std::weak_ptr<PageStore>> by_path ABSL_GUARDED_BY(mutex);
};
OpenStores& Stores() {
  static auto* const stores = new OpenStores;
  return *stores;
}

}  // namespace

absl::StatusOr<std::shared_ptr<PageStore>> OpenLmdbStore(const LmdbOptions& options) {
  std::error_code error;
  const std::string folder = std::filesystem::weakly_canonical(options.folder, error).string();
  if (error || folder.empty()) return LmdbError(error.value(), options.folder);
  OpenStores& stores = Stores();
  absl::MutexLock lock(&stores.mutex);
  std::weak_ptr<PageStore>& known = stores.by_path[folder];
  if (std::shared_ptr<PageStore> store = known.lock(); store != nullptr) return store;
  ASSIGN_OR_RETURN(std::unique_ptr<LmdbFile> file,
                   LmdbFile::Open(folder, std::max(options.max_bytes, kMinStoreBytes)));
  auto store = std::make_shared<LmdbStore>(std::move(file), options.now);
  known = store;
  return store;
}

bool HasLmdbStore(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(LmdbFile::PathIn(folder), error);
}

}  // namespace tandem
