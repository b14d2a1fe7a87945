#ifndef TANDEM_KVCACHE_STORE_FETCH_H_
#define TANDEM_KVCACHE_STORE_FETCH_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/spare_buffers.h"
#include "kvcache/kv_sequence.h"
#include "kvcache/store/page_store.h"

namespace tandem {

// The pages of a text that a cache lacks. Move it, never copy it: `pages` refers to `tokens`.
struct StoredRun {
  PoolId pool;
  size_t page_bytes = 0;
  int variant = 0;                // KvSequence::variant
  CacheSalt salt{};               // KvSequence::salt
  std::vector<TokenId> tokens{};  // of the text, from its start to the end of the last page
  int first_page = 0;             // the first page that the cache lacks
  std::vector<PageRef> pages{};   // from `first_page` on; their tokens point into `tokens`

  bool empty() const { return pages.empty(); }
};

// Pages in flight from a store. Thread-safe: one thread reads them, another takes them.
class Fetch {
 public:
  // Reading pauses while `max_bytes` or more wait to be taken.
  Fetch(std::vector<StoredRun> runs, size_t max_bytes)
      : runs_(std::move(runs)), max_bytes_(max_bytes) {}

  struct Arrival {
    int run = 0;   // its place in runs()
    int page = 0;  // its place in the run's pages
    std::vector<std::byte> bytes;
  };

  const std::vector<StoredRun>& runs() const { return runs_; }

  // ---- For the thread that takes pages ----
  // Returns the pages that have arrived since the last call: each run in order, without gaps.
  std::vector<Arrival> Take();
  // Gives the memory of taken pages back, to be reused for the next ones.
  void Recycle(std::vector<Arrival> arrivals);
  // Whether all pages that will arrive have been taken.
  bool is_over() const;
  // Returns when pages have arrived, when the fetch has finished, or after `timeout`.
  void Await(absl::Duration timeout) const;
  // Says that no more pages will be taken, so that reading stops.
  void Cancel();

  // ---- For the thread that reads them ----
  // Reads every run, or until Cancel. Returns the number of pages read.
  int ReadFrom(PageReader* pages);
  // Marks the fetch as finished: no more pages arrive.
  void Finish();

 private:
  bool Put(int run, int page, absl::Span<const std::byte> bytes);
  bool has_news() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !arrivals_.empty() || is_finished_;
  }

  const std::vector<StoredRun> runs_;
  const size_t max_bytes_;
  SpareBuffers spares_;
  mutable absl::Mutex mutex_;
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // in arrivals_
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_FETCH_H_
