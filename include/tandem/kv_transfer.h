#ifndef TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_
#define TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_

#include <cstdint>
#include <string>

namespace tandem {

// The cache pages of a request that travel between workers: the part of vLLM's
// `kv_transfer_params` that decides. A prefill request sets `do_remote_decode`; its
// completion holds what the decode request is to say.
struct KvTransferParams {
  bool do_remote_decode = false;   // keep the prompt's pages for another worker
  bool do_remote_prefill = false;  // fetch the prompt's pages from the worker named below
  std::string remote_engine_id{};
  // The lease. A prefill request may choose it, so that the decode request can be sent at the same
  // time; else the prefill worker does.
  std::string remote_request_id{};
  std::string remote_host{};
  int remote_port = 0;
  int remote_num_tokens = 0;  // of the prompt, in whole pages
  // At which the prefill worker reads prompts: how long a worker that does not know its own speed
  // waits for pages. 0 if it is not known.
  double tokens_per_second = 0.0;

  // Whether it asks for anything.
  bool is_active() const { return do_remote_decode || do_remote_prefill; }
};

// Pages of both models that travelled (EngineOptions::kv_transfer), since the engine was made.
struct TransferCounts {
  int64_t pages_sent = 0;
  int64_t bytes_sent = 0;
  int64_t pages_received = 0;
  int64_t bytes_received = 0;
  int64_t pages_hit = 0;         // of those received, put into a cache
  int64_t pages_missing = 0;     // asked for, and no longer there
  int64_t pages_damaged = 0;     // received other than they were sent; each was computed again
  int64_t pages_dropped = 0;     // not kept for others, because memory was short
  int64_t transfers = 0;         // prompts that were fetched, or were to be
  int64_t transfers_failed = 0;  // of these, broken off
  int64_t peers_refused = 0;     // of another secret, model, build or version
  int64_t leases = 0;            // prompts kept for others, now
  int64_t leased_bytes = 0;      // that they take, now
  int64_t leases_expired = 0;    // prompts that were not fetched in time
  int64_t leases_evicted = 0;    // prompts that left for later ones
  double receiving_seconds = 0.0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_
