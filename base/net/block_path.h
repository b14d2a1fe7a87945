// Another way for blocks than a connection's frames, for networks with RDMA.
#ifndef TANDEM_BASE_NET_BLOCK_PATH_H_
#define TANDEM_BASE_NET_BLOCK_PATH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/net/frame_channel.h"
#include "base/net/link.h"

namespace tandem {

// Callbacks for events on a path. OnBlock must not call the path.
class BlockPathEvents {
 public:
  virtual ~BlockPathEvents() = default;
  // Blocks can be sent: the path to the peer has been made.
  virtual void OnPathReached(LinkId link) = 0;
  // The path to the peer cannot be made, or has broken. Blocks on their way are lost.
  virtual void OnPathFailed(LinkId link, const absl::Status& why) = 0;
  // As for LinkEvents. A smaller buffer grows to the size of the block at once.
  virtual BlockBuffer OnPathBlock(LinkId link, const BlockHeader& header, size_t size) = 0;
  virtual void OnPathBlockReceived(LinkId link, const BlockHeader& header) = 0;
  virtual void OnPathBlockSent(LinkId link, size_t size) = 0;
};

// Carries blocks between processes that have a connection, by UCX. It neither encrypts nor
// authenticates: any process that reaches the fabric controls this one. Addresses and tokens travel
// over the connection. One thread makes all calls.
class BlockPath {
 public:
  // `transports`: names of UCX, separated by commas
  // Returns UNIMPLEMENTED if this build has no UCX, and UNAVAILABLE if UCX finds no device for the
  // transports. Both messages name `kv_transfer_fabric`.
  static absl::StatusOr<std::unique_ptr<BlockPath>> Open(const std::string& transports,
                                                         BlockPathEvents* events);
  // Drops all links.
  virtual ~BlockPath() = default;

  // The address of this process, for its peers. At most FrameChannel::kMaxPathBytes.
  virtual const std::string& address() const = 0;

  // Allows the peer to send blocks. Returns the token that they must carry; blocks with other
  // tokens are dropped.
  virtual uint64_t Expect(LinkId link) = 0;
  // Makes the path to a peer that has sent its address and token. Ends with OnPathReached or
  // OnPathFailed.
  virtual void Reach(LinkId link, absl::string_view address, uint64_t token) = 0;
  // `bytes` are valid as long as `owner` lives.
  // REQUIRES: OnPathReached(link).
  virtual void SendBlock(LinkId link, const BlockHeader& header, absl::Span<const std::byte> bytes,
                         std::shared_ptr<const void> owner) = 0;
  // Forgets a link, if it is known. It has no events after this call.
  virtual void Drop(LinkId link) = 0;

  // Makes progress and calls the events. Returns false if there was nothing to do.
  virtual bool Progress() = 0;
  // Becomes readable at the next event after Arm.
  virtual int descriptor() const = 0;
  // Returns false if there are events already, so that Progress must be called first.
  virtual bool Arm() = 0;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_BLOCK_PATH_H_
