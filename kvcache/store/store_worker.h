#ifndef TANDEM_KVCACHE_STORE_STORE_WORKER_H_
#define TANDEM_KVCACHE_STORE_STORE_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/spare_buffers.h"
#include "kvcache/store/fetch.h"
#include "kvcache/store/page_store.h"

namespace tandem {

// Two threads between caches and a store, so that no round waits for a disk. One reads the pages
// that prompts lack; the other writes the pages that caches publish, at the lowest priority.
// Thread-safe.
class StoreWorker {
 public:
  struct Options {
    // Limit on pages that wait to be written. Beyond it, the oldest are dropped.
    size_t max_queued_bytes = size_t{256} << 20;
    // Limit, for each fetch, on pages that were read and wait to be taken.
    size_t max_fetched_bytes = size_t{64} << 20;
    // How long the destructor keeps writing.
    absl::Duration max_flush = absl::Seconds(10);
  };
  StoreWorker(std::shared_ptr<PageStore> store, const Options& options);
  // Writes the queued pages.
  ~StoreWorker();
  StoreWorker(const StoreWorker&) = delete;
  StoreWorker& operator=(const StoreWorker&) = delete;

  // Registers a pool; call it before writing its pages. Returns the pool's number in this worker.
  int AddPool(PoolInfo pool);
  // Sets how fast a pool's pages are computed. The store records it with the next pages.
  void SetSpeed(int pool, double tokens_per_second);

  // Queues a page. Calls `fill` to copy its bytes before returning.
  void Write(int pool, const PageKey& parent, const PageKey& key, int depth,
             absl::Span<const TokenId> tokens, size_t page_bytes,
             absl::FunctionRef<void(absl::Span<std::byte>)> fill);
  // Queues PageStore::Touch for these pages, without their tokens.
  void Touch(std::vector<PageKey> run);
  // Queues runs to be read.
  std::shared_ptr<Fetch> Read(std::vector<StoredRun> runs);

  StoreStats stats() const { return store_->stats(); }
  // Pages that could not be written because the queue was full or the store failed.
  int64_t num_dropped() const;

  // Returns when everything queued so far has been written, dropped or touched.
  void AwaitWritten();

 private:
  struct Queued {
    int pool = 0;
    PageKey parent;
    PageKey key;
    int depth = 0;
    std::vector<TokenId> tokens;
    std::vector<std::byte> bytes;
  };

  bool is_stopping() const {
    absl::MutexLock lock(&mutex_);
    return is_stopping_;
  }
  void WriteQueued();
  void Flush();
  bool WriteNext();
  void ReadQueued();
  std::vector<Queued> TakeBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteBatch(const PoolInfo& pool, const std::vector<Queued>& batch);
  void NoteSpeeds();

  const std::shared_ptr<PageStore> store_;
  const Options options_;
  SpareBuffers spares_;  // of pages written
  mutable absl::Mutex mutex_;
  std::vector<PoolInfo> pools_ ABSL_GUARDED_BY(mutex_);
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::vector<PageKey>> touches_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  int num_awaiting_ ABSL_GUARDED_BY(mutex_) = 0;  // callers of AwaitWritten
  std::deque<std::shared_ptr<Fetch>> fetches_ ABSL_GUARDED_BY(mutex_);
  int64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_failed_ = false;  // whether the last write failed; used by the writer's thread
  std::thread reader_;
  std::thread writer_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_STORE_WORKER_H_
