#ifndef TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_
#define TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_

#include <cstdint>
#include <string>

namespace tandem {

// Parameters for moving a request's cache pages between workers: the fields of vLLM's
// `kv_transfer_params` that matter here. A prefill request sets `do_remote_decode`; its completion
// holds the parameters for the decode request.
struct KvTransferParams {
  bool do_remote_decode = false;   // keep the prompt's pages for another worker
  bool do_remote_prefill = false;  // fetch the prompt's pages from the worker named below
  std::string remote_engine_id{};
  // The name of the lease. A prefill request may choose it, so that the decode request can be sent
  // at the same time; otherwise the prefill worker chooses it.
  std::string remote_request_id{};
  std::string remote_host{};
  int remote_port = 0;
  int remote_num_tokens = 0;  // prompt tokens in full pages
  // The prefill worker's reading speed, 0 if unknown. A decode worker that does not know its own
  // speed uses it to decide how long to wait for pages.
  double tokens_per_second = 0.0;

  // Whether a transfer is requested.
  bool is_active() const { return do_remote_decode || do_remote_prefill; }
};

// Pages of both models that were exchanged (EngineOptions::kv_transfer), since the engine was
// created.
struct TransferCounts {
  int64_t pages_sent = 0;
  int64_t bytes_sent = 0;
  int64_t pages_received = 0;
  int64_t bytes_received = 0;
  int64_t pages_hit = 0;         // received and put into a cache
  int64_t pages_missing = 0;     // requested, but already gone
  int64_t pages_damaged = 0;     // received corrupted; each was recomputed
  int64_t pages_dropped = 0;     // not kept for other workers: memory was short
  int64_t transfers = 0;         // fetches of prompts, including failed ones
  int64_t transfers_failed = 0;  // transfers that were aborted
  int64_t peers_refused = 0;     // peers with another secret, model, build or version
  int64_t leases = 0;            // prompts currently kept for other workers
  int64_t leased_bytes = 0;      // memory that these use
  int64_t leases_expired = 0;    // prompts that were not fetched in time
  int64_t leases_evicted = 0;    // prompts evicted for later ones
  double receiving_seconds = 0.0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_KV_TRANSFER_H_
