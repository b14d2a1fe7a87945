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
#include "kvstore/fetch.h"
#include "kvstore/page_store.h"
#include "kvstore/store_worker.h"
#include "kvstore/stored_cache.h"
#include "tandem/engine.h"

namespace tandem {

// Waiting for pages delays a prompt by at most this share of the time that computing it takes. A
// prompt waits longer for another worker than for a disk: computing it would delay the answers in
// progress, and the first transfer has to connect.
inline constexpr double kMaxStoreDelay = 0.05;
inline constexpr double kMaxTransferDelay = 0.5;

// Whether a prompt goes on waiting after `waited`, when `num_arrived` of the `num_missing` tokens
// that it lacked have come: as long as computing those would have taken, and `most_delay` of
// computing all. It does not wait where the speed is not known, 0.
inline bool StillPays(absl::Duration waited, int num_arrived, int num_missing,
                      double tokens_per_second, double most_delay) {
  if (tokens_per_second <= 0.0) return false;
  return waited <= absl::Seconds((num_arrived + most_delay * num_missing) / tokens_per_second);
}

// How fast prompts are read, in tokens a second: the best of late, because waiting for too long
// costs more than not to wait.
class ReadingSpeed {
 public:
  // 0 if nothing is known.
  explicit ReadingSpeed(double tokens_per_second = 0.0) : tokens_per_second_(tokens_per_second) {}

  // Passes over few tokens say nothing.
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

// Pages that prompts of a session lack, on their way from the store or another worker. Sessions
// whose prompts lack the same first page share one.
class PromptFetch {
 public:
  PromptFetch(std::shared_ptr<Fetch> fetch, bool is_transfer)
      : fetch_(std::move(fetch)), is_transfer_(is_transfer) {}
  ~PromptFetch() { fetch_->Cancel(); }
  PromptFetch(const PromptFetch&) = delete;
  PromptFetch& operator=(const PromptFetch&) = delete;

  Fetch& fetch() const { return *fetch_; }
  bool is_transfer() const { return is_transfer_; }  // from another worker, not from the store
  // Pages that were put into a cache so far.
  int num_inserted() const { return num_inserted_; }
  void CountInserted(int num_pages) { num_inserted_ += num_pages; }

 private:
  const std::shared_ptr<Fetch> fetch_;
  const bool is_transfer_;
  int num_inserted_ = 0;
};

// What an engine has of its two caches beyond their memory: a store to which every page that they
// publish is written (EngineOptions::kv_store), and other workers (EngineOptions::kv_transfer).
// Prompts find there what memory lacks. While pages come a session waits, but not for longer than
// computing them would take. Used by the engine's thread.
class PromptStore {
 public:
  // Null unless options ask for a store or for transfers. A store that cannot be opened is a
  // warning in the log, and does without. Errors are of reading the models, or name `kv_transfer`.
  // `store`: in place of the folder's, unless it is null.
  static absl::StatusOr<std::unique_ptr<PromptStore>> Open(std::shared_ptr<PageStore> store,
                                                           const EngineOptions& options,
                                                           Runtime* runtime);

  // PromptTransfer::Begin; null if the request asks for none. INVALID_ARGUMENT if there are no
  // transfers here. On any thread.
  static absl::StatusOr<std::shared_ptr<SessionTransfer>> BeginTransfer(const PromptStore* store,
                                                                        const Request& request);

  // Asks for what both caches lack of `prompt`, which is the session's or nothing.
  void Begin(absl::Span<const TokenId> prompt, Session* session);
  // Publishes what has come for these sessions, which run; `adopt` takes it for each. Returns those
  // that wait for no more, or soon, if all do.
  std::vector<Session*> Take(absl::Span<Session* const> running,
                             absl::FunctionRef<void(Session*)> adopt);
  // Ends all waiting, because waiting sessions may hold the pages that others lack. Returns whether
  // any session waited.
  static bool StopWaiting(absl::Span<const std::unique_ptr<Session>> sessions);

  // Learns how fast prompts are read from a round that has taken `time`.
  void Observe(absl::Span<const RoundStep> steps, absl::Duration time);

  // PromptTransfer::Offer, after a round.
  void Offer(Session* session);

  // Sets the pages that were put into a cache.
  void CountHits(EngineLoad* load) const;
  // Sets all other counts, which change between rounds, too. On any thread.
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
