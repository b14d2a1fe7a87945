#ifndef TANDEM_KVCACHE_EVENTS_CACHE_EVENTS_H_
#define TANDEM_KVCACHE_EVENTS_CACHE_EVENTS_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kvcache/events/kv_event_publisher.h"
#include "kvcache/paged_kv_cache.h"
#include "kvcache/store/page_id.h"

namespace tandem {

// Turns the publications and evictions of a cache into events. A page is named by a hash of
// its tokens, all tokens before it, the variant of its cache and the salt of its text, so two
// processes use the same name for the same text. Used by the thread that uses the cache.
class CacheEvents final : public PagedKvCache::Observer {
 public:
  // `cache` must outlive this object.
  CacheEvents(PagedKvCache* cache, std::unique_ptr<KvEventPublisher> publisher);
  ~CacheEvents() override;
  CacheEvents(const CacheEvents&) = delete;
  CacheEvents& operator=(const CacheEvents&) = delete;

  // Publishes the events since the last call as one batch. No-op if there are none.
  void Flush();
  KvEventStats stats() const { return publisher_->stats(); }

  void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                 const CacheSalt& salt) override;
  void OnEvict(PageId page) override;

 private:
  PagedKvCache* const cache_;
  const std::unique_ptr<KvEventPublisher> publisher_;
  std::vector<PageKey> keys_;  // [num_pages], of published pages; PageKey() for others
  std::vector<KvEvent> events_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_EVENTS_CACHE_EVENTS_H_
