// Connections between processes that share a secret.
#ifndef TANDEM_BASE_NET_LINK_H_
#define TANDEM_BASE_NET_LINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/net/address.h"
#include "base/net/frame_channel.h"

namespace tandem {

// Identifies a connection. Ids are not reused.
using LinkId = int64_t;

struct LinkOptions {
  std::string service{};               // DerivePresharedKey; only links of one service connect
  std::vector<std::string> secrets{};  // ParseSecrets; the first is used for connecting
  std::optional<Address> address{};    // where to listen; empty: it accepts no connection
  // Whether this side accepts connections whose keys have this scope.
  std::function<bool(absl::string_view scope)> accepts{};
  // How long a peer may be silent, and how long each step of a new connection may take. Links send
  // signs of life, whatever their users do.
  absl::Duration timeout = absl::Seconds(5);
  // What carries blocks between two sides that both have it: "tcp", or "ucx"
  // (base/net/block_path.h). Frames carry them elsewhere, and after a path has failed.
  std::string fabric = "tcp";
  // Of UCX. These open no port of TCP; tests name others, which need no device.
  std::string fabric_transports = "rc,ud";
};

// Callbacks for events on connections. Called within Link::Progress.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // A connection is secured: the peer has the secret. `peer` names its address. The first message
  // of each side is its greeting; Link::Admit allows the rest. On the side that listens, this is
  // the first event of a connection.
  virtual void OnOpened(LinkId link, const std::string& peer, absl::string_view scope) = 0;
  // A stranger, or a peer with another secret, has tried to connect. Called ten times a second at
  // most.
  virtual void OnRefused(const std::string& peer, const absl::Status& why) = 0;
  // As for FrameEvents.
  virtual void OnMessage(LinkId link, absl::Span<const std::byte> bytes) = 0;
  virtual BlockBuffer OnBlock(LinkId link, const BlockHeader& header, size_t size) = 0;
  virtual void OnBlockReceived(LinkId link, const BlockHeader& header) = 0;
  virtual void OnBlockSent(LinkId link, size_t size) = 0;
  // The connection has failed, or the peer has closed it. It has no events after this one.
  //   why: PERMISSION_DENIED if the peer has another secret
  //   is_peers: the peer has ended the connection for this reason (Link::Close)
  virtual void OnClosed(LinkId link, const absl::Status& why, bool is_peers) = 0;
};

// Connections over TCP, whose bytes are sealed with keys of a TLS 1.3 handshake
// (base/net/tls_handshake.h, base/net/sealed_stream.h). Messages arrive in order, and so do blocks;
// messages overtake blocks. A fabric also lets blocks overtake each other and messages. One thread
// makes all calls, Open included; only Wake may be called by other threads.
//
// Strangers may reach the port: they cost memory and time within fixed limits, and cannot keep
// others out. The peer that has the secret is trusted with its data, not with this process.
class Link {
 public:
  // Returns UNAVAILABLE if it cannot listen, and the errors of BlockPath::Open.
  static absl::StatusOr<std::unique_ptr<Link>> Open(const LinkOptions& options, LinkEvents* events);
  // Closes all connections, without OnClosed.
  virtual ~Link() = default;

  virtual Address address() const = 0;  // where it listens, with the actual port

  // None of these blocks. A failure closes the connection and is reported by OnClosed.
  virtual LinkId Connect(const Address& address, absl::string_view scope) = 0;
  virtual void Admit(LinkId link) = 0;
  virtual void SendMessage(LinkId link, absl::string_view bytes) = 0;
  // `bytes` are valid as long as `owner` lives.
  virtual void SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                         std::shared_ptr<const void> owner) = 0;
  // Closes a connection, without OnClosed. The peer is told why, which must be an error.
  virtual void Close(LinkId link, const absl::Status& why) = 0;
  // Whether peers are still being told why their connections were closed, which takes at most a
  // second.
  virtual bool is_closing() const = 0;

  // Makes progress and calls LinkEvents. Returns false if there was nothing to do.
  virtual bool Progress() = 0;
  // Waits for an event, for Wake, or for at most this time.
  virtual void Wait(absl::Duration at_most) = 0;
  // Makes the current Wait, or else the next one, return. Thread-safe.
  virtual void Wake() = 0;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_LINK_H_
