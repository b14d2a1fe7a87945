#ifndef TANDEM_KVCACHE_TRANSFER_OFFERED_PAGES_H_
#define TANDEM_KVCACHE_TRANSFER_OFFERED_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/spare_buffers.h"
#include "kvcache/store/page_id.h"

namespace tandem {

// A copy of a page that another worker may fetch.
struct OfferedPage {
  PoolId pool;
  std::vector<std::byte> bytes;  // as PagedKvCache::ReadPages copies them
  uint64_t checksum = 0;         // XXH3 of `bytes`
};

// Pages that this worker has computed for other workers. They are copies in bounded memory, so that
// a transfer does not hold pages of a cache. Each page belongs to one lease, which covers the
// prompt of one request. A lease ends when it is released, when it expires, or when newer pages
// need its memory (the oldest lease first). Thread-safe.
class OfferedPages {
 public:
  struct Options {
    size_t max_bytes = size_t{1} << 30;
    absl::Duration lease = absl::Seconds(30);  // from its last heartbeat, or its completion
  };
  explicit OfferedPages(const Options& options);
  OfferedPages(const OfferedPages&) = delete;
  OfferedPages& operator=(const OfferedPages&) = delete;
  const Options& options() const { return options_; }

  // ---- For the engine ----
  // Begins a lease. Returns false if the id is in use.
  bool Open(const std::string& lease);
  // Copies a page into the lease. Returns false, and drops the page, if the lease has ended or
  // there is not enough memory.
  bool Add(const std::string& lease, const PoolId& pool, const PageKey& key, size_t page_bytes,
           absl::FunctionRef<void(absl::Span<std::byte>)> fill);
  // Says that no more pages will be added. Until then the lease does not expire.
  void Complete(const std::string& lease);

  // ---- For transfers ----
  enum class Presence { kThere, kComing, kNever };
  struct Found {
    Presence presence = Presence::kNever;
    std::shared_ptr<const OfferedPage> page;  // set if kThere
  };
  Found Find(const std::string& lease, const PageKey& key);
  // Identifies the worker that takes pages.
  using Taker = int64_t;
  // Extends the lease. Returns false if it does not exist. `taker` may then extend it again.
  bool Claim(const std::string& lease, Taker taker);
  // Extends a lease that `taker` has claimed.
  bool Extend(const std::string& lease, Taker taker);
  // Notes that `taker` has been sent this page of a lease that it has claimed.
  void Took(const std::string& lease, const OfferedPage& page, const PageKey& key, Taker taker);
  // Ends a lease if `taker` has been sent the last page of one of its pools. So a request with
  // another prompt, or of another tenant, does not end it.
  void ReleaseTaken(const std::string& lease, Taker taker);
  void Release(const std::string& lease);
  // Sets a function that is called after each change that may end a kComing. The function must not
  // call this object. After set_on_change returns, the previous function is not called any more.
  void set_on_change(std::function<void()> on_change);

  struct Stats {
    int64_t leases = 0;          // current
    int64_t bytes = 0;           // current
    int64_t leases_expired = 0;  // total: timed out before they were released
    int64_t leases_evicted = 0;  // total: ended because newer pages needed the memory
    int64_t pages_dropped = 0;   // total: not kept because memory was short
  };
  Stats stats() const;

 private:
  using LastPages = HashMap<PoolId, PageKey>;
  struct Lease {
    HashMap<PageKey, std::shared_ptr<const OfferedPage>> pages;
    LastPages last;                    // that were added
    HashMap<Taker, LastPages> takers;  // that were sent to each
    size_t bytes = 0;
    bool is_complete = false;
    Instant end;  // if it is complete
    std::list<std::string>::iterator age;
  };
  using Leases = HashMap<std::string, Lease>;

  void ExpireAt(Instant now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Leases::iterator lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Reserve(const std::string& lease, size_t page_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::shared_ptr<SpareBuffers> spares_;
  mutable absl::Mutex mutex_;
  std::function<void()> on_change_ ABSL_GUARDED_BY(mutex_);
  // Expired leases are removed by the next call of any function.
  mutable Leases leases_ ABSL_GUARDED_BY(mutex_);
  mutable std::list<std::string> oldest_first_ ABSL_GUARDED_BY(mutex_);
  mutable Stats stats_ ABSL_GUARDED_BY(mutex_);
  mutable Instant first_end_ ABSL_GUARDED_BY(mutex_) = Instant::InfiniteFuture();  // lower bound
  size_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of pages that are being copied
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_OFFERED_PAGES_H_
