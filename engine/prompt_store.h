#ifndef TANDEM_ENGINE_PROMPT_STORE_H_
#define TANDEM_ENGINE_PROMPT_STORE_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/prompt_transfer.h"
#include "engine/runtime.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "kvcache/store/fetch.h"
#include "kvcache/store/page_store.h"
#include "kvcache/store/store_worker.h"
#include "kvcache/store/stored_cache.h"
#include "tandem/engine.h"

namespace tandem {

// Waiting for pages delays a prompt by at most this fraction of the time that computing it takes. A
// prompt waits longer for another worker than for a disk, because computing it would delay the
// answers in progress, and the first transfer must connect.
inline constexpr double kMaxStoreDelay = 0.05;
inline constexpr double kMaxTransferDelay = 0.5;

// Whether a prompt keeps waiting after `waited`, when `num_arrived` of its `num_missing` tokens
// have arrived. The limit is the time for computing the arrived tokens plus the fraction
// `most_delay` of the time for computing all of them. It does not wait if the speed is unknown (0).
inline bool ShouldKeepWaiting(absl::Duration waited, int num_arrived, int num_missing,
                              double tokens_per_second, double most_delay) {
  if (tokens_per_second <= 0.0) return false;
  return waited <= absl::Seconds((num_arrived + most_delay * num_missing) / tokens_per_second);
}

// How fast prompts are read, in tokens per second. Estimates the best recent speed, because waiting
// too long costs more than not waiting.
class ReadingSpeed {
 public:
  // 0 if the speed is unknown.
  explicit ReadingSpeed(double tokens_per_second = 0.0) : tokens_per_second_(tokens_per_second) {}

  // Ignores passes over few tokens, which say nothing about the speed.
  void Observe(int num_tokens, absl::Duration time) {
    constexpr int kMinTokens = 16;
    constexpr double kWeightOfSlower = 0.1;
    if (num_tokens < kMinTokens || time <= absl::ZeroDuration()) return;
    const double now = num_tokens / absl::ToDoubleSeconds(time);
    tokens_per_second_ = now > tokens_per_second_
                             ? now
                             : tokens_per_second_ + kWeightOfSlower * (now - tokens_per_second_);
  }
  double tokens_per_second() const { return tokens_per_second_; }

 private:
  double tokens_per_second_;
};

// A fetch of the pages that a prompt lacks, from the store or another worker. Sessions whose
// prompts lack the same first page share one.
class PromptFetch {
 public:
  PromptFetch(std::shared_ptr<Fetch> fetch, bool is_transfer)
      : fetch_(std::move(fetch)), is_transfer_(is_transfer) {}
  ~PromptFetch() { fetch_->Cancel(); }
  PromptFetch(const PromptFetch&) = delete;
  PromptFetch& operator=(const PromptFetch&) = delete;

  Fetch& fetch() const { return *fetch_; }
  bool is_transfer() const { return is_transfer_; }  // from another worker, not from the store
  // Number of pages inserted into a cache so far.
  int num_inserted() const { return num_inserted_; }
  void CountInserted(int num_pages) { num_inserted_ += num_pages; }

 private:
  const std::shared_ptr<Fetch> fetch_;
  const bool is_transfer_;
  int num_inserted_ = 0;
};

// Extends an engine's two caches beyond memory: with a store, to which every page that they publish
// is written (EngineOptions::kv_store), and with other workers (EngineOptions::kv_transfer). A
// prompt finds pages there that memory lacks. A session waits while pages arrive, but not longer
// than computing them would take. Used by the engine's thread.
class PromptStore {
 public:
  // Returns null unless the options ask for a store or transfers. If a store cannot be opened, logs
  // a warning and continues without it. Errors concern reading the models, or name `kv_transfer`.
  // `store`: replaces the store of the options, unless it is null.
  static absl::StatusOr<std::unique_ptr<PromptStore>> Open(std::shared_ptr<PageStore> store,
                                                           const EngineOptions& options,
                                                           Runtime* runtime);

  // Calls PromptTransfer::Begin; returns null if the request does not ask for a transfer.
  // INVALID_ARGUMENT if this engine has no transfers. Thread-safe.
  static absl::StatusOr<std::shared_ptr<SessionTransfer>> BeginTransfer(const PromptStore* store,
                                                                        const Request& request);

  // Begins to fetch the pages of `prompt` that the caches lack. `prompt` is the session's, or
  // empty.
  void Begin(absl::Span<const TokenId> prompt, Session* session);
  // Publishes the pages that have arrived for these running sessions, and calls `adopt` for each
  // session that has new pages. Returns the sessions that do not wait. If all of them wait, blocks
  // briefly before it returns.
  std::vector<Session*> Take(absl::Span<Session* const> running,
                             absl::FunctionRef<void(Session*)> adopt);
  // Ends all waiting, because waiting sessions may hold pages that others need. Returns whether any
  // session waited.
  static bool StopWaiting(absl::Span<const std::unique_ptr<Session>> sessions);

  // Learns the reading speed from a round that took `time`.
  void Observe(absl::Span<const RoundStep> steps, absl::Duration time);

  // Calls PromptTransfer::Offer, after a round.
  void Offer(Session* session);

  // Sets the numbers of pages that were put into a cache.
  void CountHits(EngineLoad* load) const;
  // Sets all other counts, which also change between rounds. Thread-safe.
  void Refresh(EngineLoad* load) const;

 private:
  PromptStore(std::unique_ptr<StoreWorker> worker, std::unique_ptr<PromptTransfer> transfer,
              Runtime* runtime, PoolInfo target, std::optional<PoolInfo> draft);
  bool Advance(Session* session);
  bool Waits(Session* session) const;
  void Insert(PromptFetch* fetch);

  Runtime& runtime_;
  ReadingSpeed speed_;
  const std::unique_ptr<StoreWorker> worker_;       // null without a store
  const std::unique_ptr<PromptTransfer> transfer_;  // null without transfers
  StoredCache target_;
  std::optional<StoredCache> draft_;
  std::vector<std::weak_ptr<PromptFetch>> fetches_;
  int64_t num_store_pages_ = 0;  // put into a cache
  int64_t num_transfer_pages_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_PROMPT_STORE_H_
