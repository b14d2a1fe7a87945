#ifndef TANDEM_KVSTORE_STORED_CACHE_H_
#define TANDEM_KVSTORE_STORED_CACHE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kvcache/paged_kv_cache.h"
#include "kvstore/fetch.h"
#include "kvstore/page_id.h"
#include "kvstore/store_worker.h"

namespace tandem {

// One model's cache and its pool in a store: what the cache publishes is written to the store, and
// what was read from there is published. Used by the thread that uses the cache.
class StoredCache final : public PagedKvCache::Observer {
 public:
  // Both must outlive this. Without a worker, null, nothing is written.
  StoredCache(PagedKvCache* cache, PoolInfo pool, StoreWorker* worker);
  ~StoredCache() override;
  StoredCache(const StoredCache&) = delete;
  StoredCache& operator=(const StoredCache&) = delete;

  int number() const { return number_; }  // the worker's, of the pool
  const PoolId& pool() const { return pool_; }
  const PagedKvCache& cache() const { return *cache_; }

  // The whole pages of a text that the cache lacks, but for a page that would leave no token of it
  // to be read. Those of all its pages that the store has are marked as used.
  StoredRun Missing(absl::Span<const TokenId> tokens, int variant, const CacheSalt& salt);

  // Publishes pages of `run` from its page `first` on, in free pages of the cache. Stops where the
  // pages before it have left the cache, or none can be had. Returns how many the cache has now.
  int Insert(const StoredRun& run, int first, absl::Span<const absl::Span<const std::byte>> pages);

  // Calls `give` with each published page of a text from its page `first` on, until it returns
  // false. Returns the place after the last page given.
  int ForPublished(absl::Span<const TokenId> tokens, int variant, const CacheSalt& salt, int first,
                   absl::FunctionRef<bool(const PageKey& key, PageId page)> give);

  void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                 const CacheSalt& salt) override;

 private:
  PageKey KeyOf(PageId page, const CacheSalt& salt) const;

  PagedKvCache* const cache_;
  const PoolId pool_;
  StoreWorker* const worker_;
  const int number_;
  std::vector<PageKey> keys_;  // [num_pages], of those that are published; nothing if unknown
  std::vector<int> depths_;    // likewise: places in their texts
  bool is_inserting_ = false;
};

}  // namespace tandem

#endif  // TANDEM_KVSTORE_STORED_CACHE_H_
