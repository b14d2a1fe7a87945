// Connections between workers that carry messages and pages.
#ifndef TANDEM_KVTRANSFER_PAGE_LINK_H_
#define TANDEM_KVTRANSFER_PAGE_LINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvtransfer/message_socket.h"
#include "kvtransfer/offered_pages.h"

namespace tandem {

// Identifies a connection. Ids are not reused.
using LinkId = int64_t;

// Sent with each page, in the byte order of the machine. Machines with different byte orders do not
// share pools.
struct PageHeader {
  uint64_t ask = 0;  // AskPages::number
  uint64_t index = 0;
  uint64_t checksum = 0;
};

using PageBuffer = std::shared_ptr<std::vector<std::byte>>;

// Callbacks for events on connections. Called within PageLink::Progress.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // A peer has connected; `peer` names it in logs.
  virtual void OnAccepted(LinkId link, const std::string& peer) = 0;
  virtual void OnMessage(LinkId link, absl::Span<const std::byte> bytes) = 0;
  // A page of `size` bytes arrives. Its sender is not known, so the number of its AskPages must be
  // one that cannot be guessed. Returns a buffer of this size, or null if the page is not wanted.
  // Must not call the PageLink.
  virtual PageBuffer OnPage(const PageHeader& header, size_t size) = 0;
  // The buffer of a page has been filled.
  virtual void OnPageReceived(const PageHeader& header) = 0;
  // A page has left.
  virtual void OnPageSent(LinkId link, size_t size) = 0;
  // The connection has failed, or the peer has closed it. It has no events after this one.
  virtual void OnClosed(LinkId link, const std::string& reason) = 0;
};

// Messages arrive in order. Pages may overtake each other and messages. One thread makes all calls,
// Open included; only Wake may be called by other threads.
class PageLink {
 public:
  // Listens at the address. Returns INVALID_ARGUMENT, UNAVAILABLE or, in a build without UCX,
  // UNIMPLEMENTED.
  static absl::StatusOr<std::unique_ptr<PageLink>> Open(const Address& address, LinkEvents* events);
  // Closes all connections, without OnClosed.
  virtual ~PageLink() = default;

  virtual int port() const = 0;
  // The address that pages for this link are sent to; peers pass it to SetPageAddress.
  virtual const std::string& page_address() const = 0;

  // None of these blocks. A failure closes the connection and is reported by OnClosed.
  virtual LinkId Connect(const Address& address) = 0;
  virtual void SendMessage(LinkId link, std::string bytes) = 0;
  // Sets the page_address() of an authenticated peer. Call it before the first SendPage.
  virtual void SetPageAddress(LinkId link, std::string address) = 0;
  virtual void SendPage(LinkId link, uint64_t ask, uint64_t index,
                        std::shared_ptr<const OfferedPage> page) = 0;
  // Closes a connection, without OnClosed.
  virtual void Close(LinkId link) = 0;

  // Makes progress and calls LinkEvents. Returns false if there was nothing to do.
  virtual bool Progress() = 0;
  // Waits for an event, for Wake, or for at most this time.
  virtual void Wait(absl::Duration at_most) = 0;
  // Makes the current Wait, or else the next one, return. Thread-safe.
  virtual void Wake() = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_PAGE_LINK_H_
