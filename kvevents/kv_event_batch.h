#ifndef TANDEM_KVEVENTS_KV_EVENT_BATCH_H_
#define TANDEM_KVEVENTS_KV_EVENT_BATCH_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kvstore/page_id.h"
#include "tandem/types.h"

namespace tandem {

// Consecutive pages of one text are in the cache.
struct PagesStored {
  std::vector<PageKey> pages{};
  std::optional<PageKey> parent{};  // the page before them; none at the start of a text
  std::vector<TokenId> tokens{};    // [pages.size() * page size]
  // Of a text with a cache_salt, at its start: names the salt, and does not give it away.
  std::string tenant{};

  friend bool operator==(const PagesStored&, const PagesStored&) = default;
};

// Pages are in the cache no more.
struct PagesRemoved {
  std::vector<PageKey> pages{};

  friend bool operator==(const PagesRemoved&, const PagesRemoved&) = default;
};

// The cache is empty.
struct CacheCleared {
  friend bool operator==(const CacheCleared&, const CacheCleared&) = default;
};

using KvEvent = std::variant<PagesStored, PagesRemoved, CacheCleared>;

// What a round has changed, in order.
struct KvEventBatch {
  double time = 0;  // seconds since 1970
  std::vector<KvEvent> events{};
};

// The batch in MessagePack as vLLM's KVEventBatch (vllm/distributed/kv_events.py, which routers
// read): [time, [events], data-parallel rank 0]; an event is a map whose "type" is the name of its
// class.
std::string Encoded(const KvEventBatch& batch);

}  // namespace tandem

#endif  // TANDEM_KVEVENTS_KV_EVENT_BATCH_H_
