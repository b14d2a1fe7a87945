// Connections between workers over which messages and pages travel.
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

// Names a connection. None is used twice.
using LinkId = int64_t;

// What travels with a page, as it lies in memory: the pools of two machines whose bytes are in
// other orders differ.
struct PageHeader {
  uint64_t ask = 0;  // AskPages::number
  uint64_t index = 0;
  uint64_t checksum = 0;
};

using PageBuffer = std::shared_ptr<std::vector<std::byte>>;

// What happens to connections. Called within PageLink::Progress.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // A peer has connected; `peer` names it in logs.
  virtual void OnAccepted(LinkId link, const std::string& peer) = 0;
  virtual void OnMessage(LinkId link, absl::Span<const std::byte> bytes) = 0;
  // A page of `size` bytes arrives, from whomever: its AskPages is to be one that cannot be
  // guessed. Returns a buffer of this size, or null if the page is not wanted. May call nothing of
  // the PageLink.
  virtual PageBuffer OnPage(const PageHeader& header, size_t size) = 0;
  // The buffer is filled.
  virtual void OnPageReceived(const PageHeader& header) = 0;
  // A page has left.
  virtual void OnPageSent(LinkId link, size_t size) = 0;
  // The connection has failed, or the peer has closed it. Nothing more happens to it.
  virtual void OnClosed(LinkId link, const std::string& reason) = 0;
};

// Messages arrive in their order; pages overtake each other and messages. All calls are of one
// thread, that of Open included, but for Wake.
class PageLink {
 public:
  // Listens. INVALID_ARGUMENT, UNAVAILABLE or, in a build without UCX, UNIMPLEMENTED.
  static absl::StatusOr<std::unique_ptr<PageLink>> Open(const Address& address, LinkEvents* events);
  // Closes all connections, without OnClosed.
  virtual ~PageLink() = default;

  virtual int port() const = 0;
  // Where pages reach this link; peers give it to SetPageAddress.
  virtual const std::string& page_address() const = 0;

  // None of these waits: a failure closes the connection, and OnClosed says so.
  virtual LinkId Connect(const Address& address) = 0;
  virtual void SendMessage(LinkId link, std::string bytes) = 0;
  // Before the first page is sent: the page_address() of a peer that is trusted.
  virtual void SetPageAddress(LinkId link, std::string address) = 0;
  virtual void SendPage(LinkId link, uint64_t ask, uint64_t index,
                        std::shared_ptr<const OfferedPage> page) = 0;
  // Without OnClosed.
  virtual void Close(LinkId link) = 0;

  // Calls what happened. False if nothing did.
  virtual bool Progress() = 0;
  // Returns when something happens, after Wake, or after a time.
  virtual void Wait(absl::Duration at_most) = 0;
  // Makes the next Wait, or the one that waits, return. Thread-safe.
  virtual void Wake() = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_PAGE_LINK_H_
