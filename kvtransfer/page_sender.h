#ifndef TANDEM_KVTRANSFER_PAGE_SENDER_H_
#define TANDEM_KVTRANSFER_PAGE_SENDER_H_

#include <cstddef>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "kvtransfer/offered_pages.h"
#include "kvtransfer/page_link.h"
#include "kvtransfer/wire_messages.h"

namespace tandem {

// Answers what one peer asks for: page after page, each as soon as it is there. It
// belongs to the thread that runs the link.
class PageSender {
 public:
  PageSender(OfferedPages* offered, PageLink* link, LinkId peer)
      : offered_(offered), link_(link), peer_(peer) {}

  // Queues it. RESOURCE_EXHAUSTED if the peer has asked for too much at a time.
  absl::Status Take(AskPages ask);
  void Take(const Cancel& cancel);
  // Answers that none of the pages is sent.
  void Refuse(const AskPages& ask, const std::string& reason);

  // Sends what is there, as long as not too much is on its way.
  void Pump();
  // A page has left the machine.
  void OnSent(size_t size);

  bool is_busy() const { return !asks_.empty() || bytes_on_way_ > 0; }
  // How long pages have been on their way without one having left.
  absl::Duration stalled(Instant now) const {
    return bytes_on_way_ > 0 ? now - last_sent_ : absl::ZeroDuration();
  }

 private:
  struct Asked {
    AskPages ask;
    size_t num_sent = 0;
  };
  // True if it is answered wholly.
  bool Answer(Asked* asked);
  void SendFinish(const Asked& asked, const std::string& reason);

  OfferedPages* const offered_;
  PageLink* const link_;
  const LinkId peer_;
  std::deque<Asked> asks_;
  size_t bytes_on_way_ = 0;
  Instant last_sent_;
};

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_PAGE_SENDER_H_
