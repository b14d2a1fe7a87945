// Stores for pages of key-value caches that outlive the process.
#ifndef TANDEM_KVCACHE_STORE_PAGE_STORE_H_
#define TANDEM_KVCACHE_STORE_PAGE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvcache/store/page_id.h"

namespace tandem {

// A page to look up, and the tokens that it must have.
struct PageRef {
  PageKey key;
  int depth = 0;  // index of the page in its text, from 0
  absl::Span<const TokenId> tokens;
};

struct PageToWrite {
  PageRef page;
  PageKey parent;                     // the page before it, or the root
  absl::Span<const std::byte> bytes;  // as PagedKvCache::ReadPages copies them
};

// A pool's entry in a store.
struct PoolInfo {
  PoolId id{};
  std::string description{};  // for people
  int64_t pages = 0;
  int64_t bytes = 0;  // that the pages occupy
  int64_t hits = 0;   // pages read for requests, since the pool was created
  absl::Time last_used{};
  double tokens_per_second = 0.0;  // speed at which its pages were computed; 0 if unknown
};

// Counts since the store was opened.
struct StoreStats {
  int64_t pages_written = 0;
  int64_t bytes_written = 0;
  int64_t pages_read = 0;
  int64_t bytes_read = 0;
  int64_t pages_evicted = 0;
  int64_t pages_damaged = 0;  // differed from the bytes written; each was a miss
};

// A source of pages: a store, or another worker. It returns exactly the bits that were written
// under a key, or no page.
class PageReader {
 public:
  virtual ~PageReader() = default;

  // Calls `take` with the bytes of each page of `run`, from the first on, until it returns false or
  // a page is missing. A page counts as damaged, and as missing, if its checksum, tokens or size is
  // not what was written, or if its size is not `page_bytes`. The bytes are valid only during the
  // call. Returns the number of pages taken.
  virtual int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
                   absl::FunctionRef<bool(int index, absl::Span<const std::byte> bytes)> take) = 0;
};

// Stores pages by their keys. Pages that are read count as hits of their pool. Damaged pages are
// removed. Thread-safe.
class PageStore : public PageReader {
 public:
  // Returns how many pages of `run`, from the first on, are stored. Does not read them.
  virtual int Find(absl::Span<const PageRef> run) = 0;

  // Adds those of `pages` that are not stored yet, all or none. Evicts the least recently used runs
  // to make room. Records the pool's description, and its speed unless that is 0. Returns
  // RESOURCE_EXHAUSTED if the disk is full or the store is too small, and other errors if it cannot
  // be written.
  virtual absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) = 0;

  // Marks the stored pages of `run` as used now. The least recently used pages are evicted first;
  // of one run, the last page first.
  virtual void Touch(absl::Span<const PageRef> run) = 0;

  virtual absl::StatusOr<std::vector<PoolInfo>> Pools() = 0;
  // Removes a pool, or all pages last used before `time`. Returns the number of pages removed.
  virtual absl::StatusOr<int64_t> RemovePool(const PoolId& pool) = 0;
  virtual absl::StatusOr<int64_t> RemoveOlderThan(absl::Time time) = 0;

  virtual StoreStats stats() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_PAGE_STORE_H_
