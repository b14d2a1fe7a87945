#ifndef TANDEM_KVSTORE_POOL_TABLE_H_
#define TANDEM_KVSTORE_POOL_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/lmdb_file.h"
#include "kvstore/page_store.h"

namespace tandem {

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

#endif  // TANDEM_KVSTORE_POOL_TABLE_H_
