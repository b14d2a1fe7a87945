#ifndef TANDEM_ENGINE_PROMPT_STORE_H_
#define TANDEM_ENGINE_PROMPT_STORE_H_

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/fetch_pace.h"
#include "engine/runtime.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "kvstore/fetch.h"
#include "kvstore/page_store.h"
#include "kvstore/store_worker.h"
#include "kvstore/stored_cache.h"
#include "tandem/engine.h"

namespace tandem {

// Pages that prompts of a session lack, on their way from the store. Sessions whose prompts lack
// the same first page share one.
class PromptFetch {
 public:
  explicit PromptFetch(std::shared_ptr<Fetch> fetch) : fetch_(std::move(fetch)) {}
  ~PromptFetch() { fetch_->Cancel(); }
  PromptFetch(const PromptFetch&) = delete;
  PromptFetch& operator=(const PromptFetch&) = delete;

  Fetch& fetch() const { return *fetch_; }
  // Pages that were put into a cache so far.
  int num_inserted() const { return num_inserted_; }
  void CountInserted(int num_pages) { num_inserted_ += num_pages; }

 private:
  const std::shared_ptr<Fetch> fetch_;
  int num_inserted_ = 0;
};

// What an engine keeps of its two caches beyond their memory (EngineOptions::kv_store): every page
// that they publish is written, and prompts find there what memory lacks. While pages come a
// session waits, but not for longer than computing them would take. Used by the engine's thread.
class PromptStore {
 public:
  // Null unless options ask for a store. One that cannot be opened is a warning in the log, and
  // null. Errors are of reading the models.
  static absl::StatusOr<std::unique_ptr<PromptStore>> Open(const EngineOptions& options,
                                                           Runtime* runtime);
  // `store` in place of the folder's.
  static absl::StatusOr<std::unique_ptr<PromptStore>> Over(std::shared_ptr<PageStore> store,
                                                           const EngineOptions& options,
                                                           Runtime* runtime);

  // Asks for what both caches lack of `prompt`, which is the session's or nothing.
  void Begin(absl::Span<const TokenId> prompt, Session* session);
  // Publishes what has come for these sessions, which run; `adopt` takes it for each. Returns those
  // that wait for no more, or soon, if all do.
  std::vector<Session*> Take(absl::Span<Session* const> running,
                             absl::FunctionRef<void(Session*)> adopt);
  // Ends all waiting, because waiting sessions may hold the pages that others lack. Returns whether
  // any session waited.
  static bool StopWaiting(const std::list<std::unique_ptr<Session>>& sessions);

  // Learns how fast prompts are read from a round that has taken `time`.
  void Observe(absl::Span<const RoundStep> steps, absl::Duration time);

  StoreCounts counts() const;
  // Returns when all that was published so far is in the store, or dropped.
  void AwaitWritten() { worker_.AwaitWritten(); }

 private:
  PromptStore(std::shared_ptr<PageStore> store, Runtime* runtime, PoolInfo target,
              std::optional<PoolInfo> draft);
  bool Advance(Session* session);
  bool Waits(Session* session) const;
  void Insert(PromptFetch* fetch);

  Runtime& runtime_;
  ReadingSpeed speed_;
  StoreWorker worker_;
  StoredCache target_;
  std::optional<StoredCache> draft_;
  std::vector<std::weak_ptr<PromptFetch>> fetches_;
  int64_t num_hit_pages_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_PROMPT_STORE_H_
