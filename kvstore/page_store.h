// Where pages of key-value caches outlive their process.
#ifndef TANDEM_KVSTORE_PAGE_STORE_H_
#define TANDEM_KVSTORE_PAGE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvstore/page_id.h"

namespace tandem {

// A page and what must be found with it.
struct PageRef {
  PageKey key;
  int depth = 0;  // its place in its text, from 0
  absl::Span<const TokenId> tokens;
};

struct PageToWrite {
  PageRef page;
  PageKey parent;                     // the page before it, or the root
  absl::Span<const std::byte> bytes;  // as PagedKvCache::ReadPage gives them
};

// What a store knows of one pool.
struct PoolInfo {
  PoolId id{};
  std::string description{};  // for people
  int64_t pages = 0;
  int64_t bytes = 0;  // that they occupy
  int64_t hits = 0;   // pages that were read for requests, of all time
  absl::Time last_used{};
  double tokens_per_second = 0.0;  // at which its pages were computed; 0 if that is not known
};

// Counts since the store was opened.
struct StoreStats {
  int64_t pages_written = 0;
  int64_t bytes_written = 0;
  int64_t pages_read = 0;
  int64_t bytes_read = 0;
  int64_t pages_evicted = 0;
  int64_t pages_damaged = 0;  // found other than they were written; each was a miss
};

// Where pages come from: a store, or another worker. What it gives has the bits that were written
// under the key, or is not given.
class PageReader {
 public:
  virtual ~PageReader() = default;

  // Calls `take` with the bytes of each page of `run`, from the first on, until it returns false or
  // a page is not there. A page whose checksum, tokens or size is not what was written, or that has
  // not `page_bytes` bytes, counts as damaged and is not there. The bytes are valid within the
  // call. Returns how many were taken.
  virtual int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
                   absl::FunctionRef<bool(int index, absl::Span<const std::byte> bytes)> take) = 0;
};

// Keeps pages by their keys. Those read are counted as hits of their pool, damaged ones are
// removed. Thread-safe.
class PageStore : public PageReader {
 public:
  // How many pages of `run`, from the first on, are there. Reads none of them.
  virtual int Find(absl::Span<const PageRef> run) = 0;

  // Adds those of `pages` that are not there, all or none; the least recently used runs leave for
  // them. Notes the pool's description, and the speed at which pages are computed unless it is 0.
  // RESOURCE_EXHAUSTED if the disk is full or the store too small, others if it cannot be written.
  virtual absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) = 0;

  // Marks those pages of `run` that are there as used now: the pages that leave first are those
  // that were used the longest ago, and of one run its last.
  virtual void Touch(absl::Span<const PageRef> run) = 0;

  virtual absl::StatusOr<std::vector<PoolInfo>> Pools() = 0;
  // Removes a pool, or pages that were used last before `time`. Returns how many pages left.
  virtual absl::StatusOr<int64_t> RemovePool(const PoolId& pool) = 0;
  virtual absl::StatusOr<int64_t> RemoveOlderThan(absl::Time time) = 0;

  virtual StoreStats stats() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVSTORE_PAGE_STORE_H_
