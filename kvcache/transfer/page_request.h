#ifndef TANDEM_KVCACHE_TRANSFER_PAGE_REQUEST_H_
#define TANDEM_KVCACHE_TRANSFER_PAGE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/net/link.h"
#include "base/spare_buffers.h"
#include "kvcache/transfer/offered_pages.h"
#include "kvcache/transfer/wire_messages.h"

namespace tandem {

// The pages of one AskPages, shared by the thread that receives them and the thread that reads
// them. Thread-safe.
class PageRequest {
 public:
  enum class Outcome {
    kThere,
    kDamaged,
    kNotThere,  // the peer does not have it
    kFailed,    // the connection ended first
  };

  // Allocates the memory for all pages.
  PageRequest(uint64_t number, size_t num_pages, size_t page_bytes,
              const std::shared_ptr<SpareBuffers>& spares);

  uint64_t number() const { return number_; }
  size_t num_pages() const { return num_pages_; }

  // ---- For the thread that receives ----
  // Returns the buffer for a page, or null if the page is not wanted: it was not asked for, has
  // already come, or has another size.
  BlockBuffer BufferOf(const BlockHeader& header, size_t size);
  void Fill(const BlockHeader& header);
  // The peer sends only the first `num_sent` pages.
  void Finish(size_t num_sent);
  // Whether no more pages are awaited.
  bool IsComplete() const;
  // The connection has ended: no more pages come.
  void Fail();

  // ---- For the thread that reads ----
  // Waits for a page. The span stays valid as long as this object lives.
  Outcome Await(size_t index, absl::Span<const std::byte>* bytes);

 private:
  enum class State { kAwaited, kArriving, kFilled, kOfOtherSize };
  struct Page {
    State state = State::kAwaited;
    BlockBuffer buffer;
    uint64_t checksum = 0;
  };
  bool IsDecided(size_t index) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const uint64_t number_;
  const size_t num_pages_;
  const size_t page_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<Page> pages_ ABSL_GUARDED_BY(mutex_);
  size_t num_coming_ ABSL_GUARDED_BY(mutex_);
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Sends the pages that one peer asks for, in order, each as soon as it is available. Belongs to the
// thread that runs the link.
class PageSender {
 public:
  PageSender(OfferedPages* offered, Link* link, LinkId peer)
      : offered_(offered), link_(link), peer_(peer) {}

  // Queues a request. Returns RESOURCE_EXHAUSTED if the peer has too many requests open.
  absl::Status Take(AskPages ask);
  void Take(const Cancel& cancel);
  // Answers that no page will be sent.
  void Refuse(const AskPages& ask, const std::string& reason);

  // Sends available pages, up to a limit on the bytes in flight.
  void Pump();
  // Called when a page has been sent.
  void OnSent(size_t size);

  bool is_busy() const { return !asks_.empty() || bytes_on_way_ > 0; }

 private:
  struct Asked {
    AskPages ask;
    size_t num_sent = 0;
  };
  // Returns true once the request is answered completely.
  bool Answer(Asked* asked);
  void SendFinish(const Asked& asked, const std::string& reason);

  OfferedPages* const offered_;
  Link* const link_;
  const LinkId peer_;
  std::deque<Asked> asks_;
  size_t bytes_on_way_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_PAGE_REQUEST_H_
