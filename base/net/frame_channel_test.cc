#include "base/net/frame_channel.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/stream_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(5);

// Remembers what arrives.
struct Memory : FrameEvents {
  void OnMessage(absl::Span<const std::byte> bytes) override { got.push_back(AsText(bytes)); }
  BlockBuffer OnBlock(const BlockHeader& header, size_t size) override {
    headers.push_back(header);
    if (!wants_blocks) return nullptr;
    buffer = std::make_shared<std::vector<std::byte>>(std::min(size, first_bytes));
    return buffer;
  }
  void OnBlockReceived(const BlockHeader& header) override {
    got.push_back(absl::StrCat("block ", header.tag, " ", AsText(*buffer)));
  }
  void OnBlockSent(size_t size) override { sent.push_back(size); }
  void OnPath(uint64_t token, absl::string_view address) override {
    got.push_back(absl::StrCat("path ", token, " ", address));
  }

  bool wants_blocks = true;
  size_t first_bytes = size_t{1} << 30;  // of a buffer
  std::vector<std::string> got;
  std::vector<BlockHeader> headers;
  std::vector<size_t> sent;
  BlockBuffer buffer;
};

struct Channels {
  explicit Channels(bool is_admitted = true) {
    if (is_admitted) a.Admit(), b.Admit();
  }
  void Put(absl::string_view bytes) { up.bytes.append(bytes.data(), bytes.size()); }

  Pipe up, down;
  PipeStream a_wire{&down, &up}, b_wire{&up, &down};
  Memory of_a, of_b;
  FrameChannel a{&a_wire, &of_a, kTimeout}, b{&b_wire, &of_b, kTimeout};
};

void SendBlock(FrameChannel* channel, uint64_t tag, std::string text) {
  const auto owner = std::make_shared<std::string>(std::move(text));
  channel->SendBlock({.tag = tag, .index = 7, .checksum = 9}, AsBytes(*owner), owner);
}

std::string Frame(int type, uint32_t size, absl::string_view rest = "") {
  std::string frame;
  for (int i = 0; i < 4; ++i) frame += static_cast<char>(size >> (8 * i) & 255);
  return absl::StrCat(frame, std::string(1, static_cast<char>(type)), std::string(3, '\0'), rest);
}

TEST(FrameChannel, CarriesMessagesAndBlocksInPiecesOfAnySize) {
  for (const size_t most : {1, 7, 1000, 1'000'000}) {
    Channels channels;
    channels.a_wire.most_at_once = channels.b_wire.most_at_once = most;
    const std::string block(40'000, 'b'), message(FrameChannel::kMaxMessageBytes, 'm');
    ASSERT_TRUE(channels.a.SendMessage("").ok());
    ASSERT_TRUE(channels.a.SendMessage(message).ok());
    SendBlock(&channels.a, 1, block);
    SendBlock(&channels.a, 2, "");
    ASSERT_TRUE(channels.a.SendBeat().ok());
    ASSERT_TRUE(channels.a.Flush().ok());
    EXPECT_FALSE(channels.a.has_unsent());
    ASSERT_TRUE(channels.b.Receive().ok());
    EXPECT_THAT(channels.of_b.got,
                ElementsAre("", message, absl::StrCat("block 1 ", block), "block 2 "));
    EXPECT_EQ(channels.of_b.headers[0].index, 7u);
    EXPECT_EQ(channels.of_b.headers[0].checksum, 9u);
    EXPECT_THAT(channels.of_a.sent, ElementsAre(block.size(), 0));
  }
}

TEST(FrameChannel, MessagesOvertakeBlocksThatHaveNotBegun) {
  Channels channels;
  channels.up.capacity = 20'000;
  SendBlock(&channels.a, 1, std::string(30'000, '1'));
  SendBlock(&channels.a, 2, "2");
  ASSERT_TRUE(channels.a.Flush().ok());  // the pipe is full within the first block
  ASSERT_TRUE(channels.a.SendMessage("message").ok());
  while (channels.a.has_unsent() || !channels.up.bytes.empty()) {
    ASSERT_TRUE(channels.b.Receive().ok());
    ASSERT_TRUE(channels.a.Flush().ok());
  }
  EXPECT_THAT(channels.of_b.got,
              ElementsAre("block 1 " + std::string(30'000, '1'), "message", "block 2 2"));
}

TEST(FrameChannel, OneTurnIsBounded) {
  Channels channels;
  SendBlock(&channels.a, 1, std::string(3'000'000, '1'));
  ASSERT_TRUE(channels.a.Flush().ok());
  EXPECT_TRUE(channels.a.can_go_on());
  EXPECT_LT(channels.up.bytes.size(), 1'100'000u);
  while (channels.a.has_unsent()) ASSERT_TRUE(channels.a.Flush().ok());
  ASSERT_TRUE(channels.b.Receive().ok());
  EXPECT_TRUE(channels.b.can_go_on());
  EXPECT_TRUE(channels.of_b.got.empty());
}

TEST(FrameChannel, CarriesAddressesOfPaths) {
  Channels channels;
  const std::string address(FrameChannel::kMaxPathBytes, 'p');
  ASSERT_TRUE(channels.a.SendPath(7, address).ok());
  ASSERT_TRUE(channels.a.Flush().ok());
  ASSERT_TRUE(channels.b.Receive().ok());
  EXPECT_THAT(channels.of_b.got, ElementsAre(absl::StrCat("path 7 ", address)));
}

TEST(FrameChannel, BytesOfNoFrameAreRefused) {
  for (const bool is_admitted : {false, true}) {
    for (const std::string& bytes :
         {Frame(0, 0), Frame(5, 0), Frame(255, 4), Frame(1, 0xffffffff),
          Frame(1, is_admitted ? (64 << 10) + 1 : (4 << 10) + 1), Frame(2, 23), Frame(3, 2000),
          Frame(3, 3, "abc"), Frame(3, 4, std::string(4, '\0')),
          Frame(3, 4, std::string("\x11\0\0\0", 4)), Frame(4, 1), std::string(8, '\xff'),
          Frame(5, is_admitted ? 8 + (16 << 10) + 1 : 9), Frame(5, 8, "no place"),
          std::string("\x01\0\0\0\x01\x01\0\0", 8), std::string("GET / HTTP/1.1\r\n\r\n")}) {
      Channels channels(is_admitted);
      channels.Put(bytes);
      EXPECT_TRUE(absl::IsInvalidArgument(channels.b.Receive())) << is_admitted << bytes;
      EXPECT_FALSE(channels.b.has_ended());
    }
  }
  Channels channels(/*is_admitted=*/false);
  SendBlock(&channels.a, 1, "early");
  ASSERT_TRUE(channels.a.Flush().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(channels.b.Receive()));
}

TEST(FrameChannel, ABlockGetsMemoryAsItArrives) {
  Channels channels;
  channels.of_b.first_bytes = 100;
  channels.Put(Frame(2, 0xfffffff0, std::string(24 + 1000, 'x')));
  ASSERT_TRUE(channels.b.Receive().ok());
  EXPECT_LE(channels.of_b.buffer->capacity(), 1000 + FrameChannel::kGrowth);
  channels.Put(std::string(500'000, 'x'));
  ASSERT_TRUE(channels.b.Receive().ok());
  EXPECT_LE(channels.of_b.buffer->capacity(), 501'000 + FrameChannel::kGrowth);
}

TEST(FrameChannel, UnwantedBlocksAreReadAndBounded) {
  Channels channels;
  channels.of_b.wants_blocks = false;
  const std::string block(1'000'000, 'x');
  const auto deliver = [&] {
    SendBlock(&channels.a, 1, block);
    absl::Status status;
    while (channels.a.has_unsent()) status.Update(channels.a.Flush());
    do {
      status.Update(channels.b.Receive());
    } while (status.ok() && channels.b.can_go_on());
    return status;
  };
  const size_t num_read = FrameChannel::kMaxUnwantedBlocks / block.size() + 1;
  for (size_t i = 0; i < num_read; ++i) EXPECT_TRUE(deliver().ok());
  EXPECT_THAT(deliver().message(), HasSubstr("not asked for"));
  EXPECT_TRUE(channels.of_b.got.empty());
}

TEST(FrameChannel, APeerThatDoesNotReadIsNoticed) {
  Channels channels;
  channels.up.capacity = 0;
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i)
    status = channels.a.SendMessage(std::string(65536, 'x'));
  EXPECT_EQ(status, absl::UnavailableError("it does not read messages"));
}

TEST(FrameChannel, AnEndIsToldWithItsReason) {
  Channels channels;
  SendBlock(&channels.a, 1, "not begun");
  ASSERT_TRUE(channels.a.SendEnd(absl::PermissionDeniedError("no")).ok());
  ASSERT_TRUE(channels.a.Flush().ok());
  EXPECT_EQ(channels.b.Receive(), absl::PermissionDeniedError("no"));
  EXPECT_TRUE(channels.b.has_ended());
  EXPECT_TRUE(channels.of_b.headers.empty());
  Channels cut;
  cut.up.is_ended = true;
  EXPECT_EQ(cut.b.Receive(), absl::UnavailableError("it has closed the connection"));
  EXPECT_FALSE(cut.b.has_ended());
}

// A peer that stops after each byte of each frame, and one that sends a byte each second.
TEST(FrameChannel, EveryFrameHasADeadline) {
  Channels whole;
  ASSERT_TRUE(whole.a.SendMessage("message").ok());
  SendBlock(&whole.a, 1, "a block");
  ASSERT_TRUE(whole.a.SendEnd(absl::AbortedError("end")).ok());
  ASSERT_TRUE(whole.a.Flush().ok());
  const std::string bytes = whole.up.bytes;
  const std::vector<size_t> boundaries = {0, 15, 15 + 8 + 4 + 3};
  for (size_t size = 0; size < bytes.size(); ++size) {
    FakeClock clock;
    Channels channels;
    const bool is_boundary =
        std::find(boundaries.begin(), boundaries.end(), size) != boundaries.end();
    channels.Put(bytes.substr(0, size));
    ASSERT_TRUE(channels.b.Receive().ok());
    clock.Advance(kTimeout);
    EXPECT_TRUE(channels.b.CheckDeadlines(Instant::Now()).ok());
    clock.Advance(absl::Milliseconds(1));
    EXPECT_EQ(channels.b.CheckDeadlines(Instant::Now()).ok(), is_boundary) << size;
  }
  FakeClock clock;
  Channels slow;
  slow.Put(Frame(2, 24 + 1000, std::string(24, 'x')));
  int num_seconds = 0;
  do {
    slow.Put("x");
    ASSERT_TRUE(slow.b.Receive().ok());
    clock.Advance(absl::Seconds(1));
    ++num_seconds;
  } while (slow.b.CheckDeadlines(Instant::Now()).ok());
  EXPECT_EQ(num_seconds, 31);
}

TEST(FrameChannel, APeerMustAcceptBytesInTime) {
  FakeClock clock;
  Channels channels;
  channels.up.capacity = 5;
  ASSERT_TRUE(channels.a.SendMessage("message").ok());
  ASSERT_TRUE(channels.a.Flush().ok());
  clock.Advance(kTimeout);
  EXPECT_TRUE(channels.a.CheckDeadlines(Instant::Now()).ok());
  channels.up.capacity = 6;
  ASSERT_TRUE(channels.a.Flush().ok());
  clock.Advance(kTimeout);
  EXPECT_TRUE(channels.a.CheckDeadlines(Instant::Now()).ok());
  clock.Advance(absl::Milliseconds(1));
  EXPECT_THAT(channels.a.CheckDeadlines(Instant::Now()).message(), HasSubstr("accepted nothing"));
}

}  // namespace
}  // namespace tandem
