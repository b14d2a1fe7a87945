#ifndef TANDEM_KVCACHE_EVENTS_KV_EVENT_PUBLISHER_H_
#define TANDEM_KVCACHE_EVENTS_KV_EVENT_PUBLISHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcache/store/page_id.h"
#include "tandem/types.h"

namespace tandem {

// Consecutive pages of one text were added to the cache.
struct PagesStored {
  std::vector<PageKey> pages{};
  std::optional<PageKey> parent{};  // the page before them; empty at the start of a text
  std::vector<TokenId> tokens{};    // [pages.size() * page size]
  // Set at the start of a text with a cache_salt: identifies the salt without revealing it.
  std::string tenant{};

  friend bool operator==(const PagesStored&, const PagesStored&) = default;
};

// Pages were removed from the cache.
struct PagesRemoved {
  std::vector<PageKey> pages{};

  friend bool operator==(const PagesRemoved&, const PagesRemoved&) = default;
};

using KvEvent = std::variant<PagesStored, PagesRemoved>;

// The changes of one round, in order.
struct KvEventBatch {
  double time = 0;  // seconds since 1970
  std::vector<KvEvent> events{};
};

// Encodes the batch in MessagePack as vLLM's KVEventBatch, which routers read
// (vllm/distributed/kv_events.py): [time, [events], data-parallel rank 0]. An event is a map whose
// "type" is the name of its class.
std::string Encoded(const KvEventBatch& batch);

struct KvEventStats {
  int64_t published = 0;  // batches sent to the subscribers
  int64_t lost = 0;       // batches dropped because the queue was full
};

// Publishes batches of events. Batches are numbered from 0 on; the number of a lost batch is
// skipped.
class KvEventPublisher {
 public:
  virtual ~KvEventPublisher() = default;
  // Queues a batch with the next number. Never blocks: if the queue is full, the batch is lost.
  virtual void Publish(KvEventBatch batch) = 0;
  virtual KvEventStats stats() const = 0;
};

struct KvEventOptions {
  std::string endpoint{};         // ZeroMQ endpoint to bind: "tcp://*:5557", "ipc:///path"
  std::string replay_endpoint{};  // the same, for replays; empty for none
  std::string topic{};
  size_t max_queued = 10'000;  // maximum batches that wait to be sent; more are lost
  // Limits of the last batches that are kept for replays.
  size_t max_kept = 10'000;
  size_t max_kept_bytes = size_t{64} << 20;
};

// Starts a publisher that works like vLLM's ZmqEventPublisher. A PUB socket at `endpoint` sends
// [topic, number as 8 bytes, big-endian, batch]. A ROUTER socket at `replay_endpoint` accepts ["",
// number] and answers with ["", topic, number, batch] for every kept batch from that number on,
// then with the number -1 and an empty batch. Subscribers that read too slowly miss batches,
// without any other effect.
//
// INVALID_ARGUMENT naming `kv_events` or `kv_events_replay` if its endpoint cannot be bound.
// Thread-safe.
absl::StatusOr<std::unique_ptr<KvEventPublisher>> StartKvEventPublisher(
    const KvEventOptions& options);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_EVENTS_KV_EVENT_PUBLISHER_H_
