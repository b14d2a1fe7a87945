#ifndef TANDEM_KVEVENTS_KV_EVENT_PUBLISHER_H_
#define TANDEM_KVEVENTS_KV_EVENT_PUBLISHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
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

struct KvEventStats {
  int64_t published = 0;  // batches, each sent to whoever subscribed to it
  int64_t lost = 0;       // batches: too many waited
};

// Where batches of events go. Each has a number, from 0 on, one more than the batch before it; the
// number of a batch that is lost is missing.
class KvEventPublisher {
 public:
  virtual ~KvEventPublisher() = default;
  // Takes the next number and waits for nothing: a batch for which the queue has no room is lost.
  virtual void Publish(KvEventBatch batch) = 0;
  virtual KvEventStats stats() const = 0;
};

struct KvEventOptions {
  std::string endpoint{};         // of ZeroMQ, to bind: "tcp://*:5557", "ipc:///path"
  std::string replay_endpoint{};  // likewise; empty for none
  std::string topic{};
  size_t max_queued = 10'000;  // batches that wait to be sent; more are lost
  // Of the last batches, which can be asked for again: as many as both allow.
  size_t max_kept = 10'000;
  size_t max_kept_bytes = size_t{64} << 20;
};

// Publishes as vLLM's ZmqEventPublisher does. A PUB socket at `endpoint` sends [topic, number as
// 8 bytes, big-endian, batch]. A ROUTER socket at `replay_endpoint` takes ["", number] and answers
// with ["", topic, number, batch] for every batch from that number on that is kept, and then with
// the number -1 and an empty batch. Subscribers that read too slowly miss batches, and cost nothing
// else.
//
// INVALID_ARGUMENT naming `kv_events` or `kv_events_replay` if its endpoint cannot be bound.
// Thread-safe.
absl::StatusOr<std::unique_ptr<KvEventPublisher>> StartKvEventPublisher(
    const KvEventOptions& options);

}  // namespace tandem

#endif  // TANDEM_KVEVENTS_KV_EVENT_PUBLISHER_H_
