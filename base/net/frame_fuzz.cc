// Feeds bytes of a peer to the frames of a connection, before and after its greeting. Checks the
// limits on the memory that this side takes for them, and that its own frames can be read.
#include <algorithm>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/net/frame_channel.h"
#include "base/net/stream_testing.h"

namespace tandem {
namespace {

struct Events final : FrameEvents {
  void OnMessage(absl::Span<const std::byte> bytes) override {
    TANDEM_CHECK(bytes.size() <=
                 (is_admitted ? FrameChannel::kMaxMessageBytes : FrameChannel::kMaxGreetingBytes));
    last = AsText(bytes);
  }
  BlockBuffer OnBlock(const BlockHeader& header, size_t) override {
    TANDEM_CHECK(is_admitted && buffer == nullptr);
    if (header.tag % 2 == 0) return nullptr;
    return buffer = std::make_shared<std::vector<std::byte>>();
  }
  void OnBlockReceived(const BlockHeader& header) override {
    TANDEM_CHECK(buffer != nullptr && header.tag % 2 == 1);
    buffer = nullptr;
  }
  void OnBlockSent(size_t) override {}

  bool is_admitted = false;
  std::string last;
  BlockBuffer buffer;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  Pipe up, down;
  PipeStream wire(&up, &down), peer(&down, &up);
  Events events;
  FrameChannel channel(&wire, &events, absl::Hours(1));
  events.is_admitted = (data[0] & 1) != 0;
  if (events.is_admitted) channel.Admit();
  wire.most_at_once = (data[0] & 2) != 0 ? 1 : 1000;
  up.bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  up.is_ended = (data[0] & 4) != 0;
  absl::Status status;
  do {
    status = channel.Receive();
    TANDEM_CHECK(events.buffer == nullptr || events.buffer->size() <= size + FrameChannel::kGrowth);
  } while (status.ok() && channel.can_go_on());
  TANDEM_CHECK(status.ok() || !status.message().empty() || channel.has_ended());
  channel.CheckDeadlines(Instant::Now()).IgnoreError();
  // The message comes back.
  if (events.last.empty()) return 0;
  Events of_peer;
  of_peer.is_admitted = true;
  FrameChannel answers(&peer, &of_peer, absl::Hours(1));
  answers.Admit();
  TANDEM_CHECK(channel.SendMessage(events.last).ok() && channel.Flush().ok());
  TANDEM_CHECK(answers.Receive().ok() && of_peer.last == events.last);
  return 0;
}
