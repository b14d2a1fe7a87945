#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_LOAD_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_LOAD_H_

#include <cstdint>

#include "tandem/kv_transfer.h"
#include "tandem/round_stats.h"

namespace tandem {

// Pages of both models in EngineOptions::kv_store, since the engine was created.
struct StoreCounts {
  int64_t pages_written = 0;
  int64_t bytes_written = 0;
  int64_t pages_read = 0;
  int64_t bytes_read = 0;
  int64_t pages_hit = 0;      // read and put into a cache
  int64_t pages_evicted = 0;  // removed to make room for others
  int64_t pages_dropped = 0;  // not written: the queue was full, or the store failed
  int64_t pages_damaged = 0;  // read back corrupted; each was recomputed
};

// Batches of events published at EngineOptions::kv_events, since the engine was created.
struct KvEventCounts {
  int64_t batches_published = 0;  // with or without a subscriber
  // Not published, because the queue was full or memory was short. Their numbers are skipped.
  int64_t batches_lost = 0;
};

// A snapshot of the engine between two rounds, for monitoring. Counts start when the engine is
// created.
struct EngineLoad {
  int num_running = 0;  // generations that hold cache pages
  int num_waiting = 0;
  int target_pages_in_use = 0;  // by sequences; published pages without a user count as free
  int draft_pages_in_use = 0;
  RoundStats stats;  // including generations in progress
  int64_t prompt_tokens = 0;
  int64_t prefix_queries = 0;     // prompt tokens looked up in the target's prefix cache
  int64_t prefix_hits = 0;        // prompt tokens found there
  int64_t draft_prefix_hits = 0;  // found in the draft's prefix cache, in draft tokens
  int64_t preemptions = 0;
  StoreCounts store{};
  TransferCounts transfer{};
  KvEventCounts kv_events{};
  int64_t draft_memory_bytes = 0;  // used to remember texts, for all tenants
  int draft_memory_tenants = 0;    // tenants whose texts are remembered, or should be
  int64_t draft_text_bytes = 0;    // used by given texts (draft_texts.h)
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_LOAD_H_
