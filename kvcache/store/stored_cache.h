#ifndef TANDEM_KVCACHE_STORE_STORED_CACHE_H_
#define TANDEM_KVCACHE_STORE_STORED_CACHE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kvcache/paged_kv_cache.h"
#include "kvcache/store/fetch.h"
#include "kvcache/store/page_id.h"
#include "kvcache/store/store_worker.h"

namespace tandem {

// Connects one model's cache with its pool in a store: writes the pages that the cache publishes to
// the store, and publishes pages read from there. Use it only on the thread that uses the cache.
class StoredCache final : public PagedKvCache::Observer {
 public:
  // `cache` and `worker` must outlive this. `worker` may be null; then no page is written.
  StoredCache(PagedKvCache* cache, PoolInfo pool, StoreWorker* worker);
  ~StoredCache() override;
  StoredCache(const StoredCache&) = delete;
  StoredCache& operator=(const StoredCache&) = delete;

  int number() const { return number_; }  // the pool's number in the worker
  const PoolId& pool() const { return pool_; }
  const PagedKvCache& cache() const { return *cache_; }

  // Returns the whole pages of a text that the cache lacks, leaving at least one token to be read.
  // Marks all pages of the text that the store has as used.
  StoredRun Missing(absl::Span<const TokenId> tokens, int variant, const CacheSalt& salt);

  // Publishes `pages`, which are those of `run` from index `first` on, in free pages of the cache.
  // Stops when the cache runs out of pages. Inserts no page if the cache has evicted one before
  // them. Returns how many of `pages` the cache holds.
  int Insert(const StoredRun& run, int first, absl::Span<const absl::Span<const std::byte>> pages);

  // Calls `give` with each published page of a text from page `first` on, until it returns false.
  // copy(into) copies the page, during the call of `give`. Returns the index after the last page
  // accepted.
  int ForPublished(absl::Span<const TokenId> tokens, int variant, const CacheSalt& salt, int first,
                   absl::FunctionRef<bool(const PageKey& key, Backend::CopyPage copy)> give);

  void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                 const CacheSalt& salt) override;
  void OnAllPublished() override;
  // Pages that are no longer published may change before OnAllPublished.
  void OnEvict(PageId page) override;

 private:
  // A published page that goes to the store.
  struct Unwritten {
    PageId page;
    PageKey parent;
    std::vector<TokenId> tokens;
  };

  PageKey KeyOf(PageId page, const CacheSalt& salt) const;

  PagedKvCache* const cache_;
  const PoolId pool_;
  StoreWorker* const worker_;
  const int number_;
  std::vector<PageKey> keys_;         // [num_pages]: keys of published pages; PageKey() if unknown
  std::vector<int> depths_;           // [num_pages]: indices of published pages in their texts
  std::vector<Unwritten> unwritten_;  // between OnPublish and OnAllPublished
  bool is_inserting_ = false;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_STORED_CACHE_H_
