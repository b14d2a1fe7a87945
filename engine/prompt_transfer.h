#ifndef TANDEM_ENGINE_PROMPT_TRANSFER_H_
#define TANDEM_ENGINE_PROMPT_TRANSFER_H_

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/net/host_and_port.h"
#include "draft/drafter.h"
#include "engine/session.h"
#include "kvcache/store/fetch.h"
#include "kvcache/store/page_id.h"
#include "kvcache/store/page_store.h"
#include "kvcache/store/stored_cache.h"
#include "kvcache/transfer/page_transfer.h"
#include "tandem/engine_options.h"
#include "tandem/kv_transfer.h"
#include "tandem/request.h"

namespace tandem {

// Parses "HOST:PORT" or "[IPV6]:PORT"; returns nothing for "". INVALID_ARGUMENT naming
// `kv_transfer` for other texts.
absl::StatusOr<std::optional<HostAndPort>> ParseTransferAddress(absl::string_view text);

// One session's side of a transfer: the lease under which its prompt's pages are kept for another
// worker, or the lender of pages that another worker has computed.
class SessionTransfer {
 public:
  // Releases the lease if the prompt was not read to its end.
  ~SessionTransfer();

 private:
  friend class PromptTransfer;
  SessionTransfer() = default;

  std::string request_id_;
  OfferedPages* offered_ = nullptr;  // null unless a lease is open
  std::string name_;                 // of the lease, as clients know it
  std::string lease_;                // its name between workers
  int next_target_page_ = 0;
  int next_draft_page_ = 0;
  std::shared_ptr<PageReader> lender_;  // null unless pages must be fetched
  double tokens_per_second_ = 0.0;      // of the lender
};

// Exchanges prompts' pages with other workers (EngineOptions::kv_transfer).
//
// A worker names a lease "w-" and 128 random bits, which cannot be guessed. A name that a client
// chooses is a name within its tenant (Request::cache_salt).
class PromptTransfer {
 public:
  // Returns null unless the options ask for transfers. `pools`: the target's, then the draft's if
  // there is one. Errors name `kv_transfer`.
  static absl::StatusOr<std::unique_ptr<PromptTransfer>> Open(const EngineOptions& options,
                                                              std::vector<PoolId> pools);
  explicit PromptTransfer(std::unique_ptr<PageTransfer> transfer)
      : transfer_(std::move(transfer)) {}
  // Aborts every transfer.
  ~PromptTransfer();

  // Opens the lease, or connects to the lender, of a request with active parameters. Never blocks.
  // Thread-safe. INVALID_ARGUMENT naming the field.
  absl::StatusOr<std::shared_ptr<SessionTransfer>> Begin(const Request& request) const;

  // ---- On the engine's thread ----
  static bool Fetches(const Session& session);
  // The speed at which the lender reads prompts; 0 if unknown.
  static double LenderSpeed(const Session& session);
  // Gives up the lender: pages of the prompt that memory lacks will be computed.
  static void EndFetching(const Session& session);
  // Begins to fetch. The lender is given up when everything has arrived.
  std::shared_ptr<Fetch> Read(std::vector<StoredRun> runs, const Session& session);
  // Copies the pages of the session's prompt that the caches have published since the last call.
  // Once the prompt is read, fills in the completion. `draft` and `drafter` are null without a
  // draft model. `tokens_per_second`: the speed at which this engine reads prompts.
  void Offer(StoredCache* target, StoredCache* draft, Drafter* drafter, double tokens_per_second,
             Session* session) const;

  // PageTransfer::stats.
  TransferCounts counts() const { return transfer_->stats(); }

 private:
  struct Reader {
    std::shared_ptr<Fetch> fetch;
    std::shared_ptr<std::atomic<bool>> is_done;
    std::thread thread;
  };

  std::unique_ptr<PageTransfer> transfer_;
  std::list<Reader> readers_;  // one thread per prompt being fetched
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_PROMPT_TRANSFER_H_
