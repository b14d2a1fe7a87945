#include "kvcache/transfer/wire_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "kvcache/transfer/message_testing.h"

namespace tandem {
namespace {

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(WireMessages, SurviveARoundTrip) {
  for (const WireMessage& message : MessageSamples()) {
    const std::string bytes = Encode(message);
    const absl::StatusOr<WireMessage> read = Decode(BytesOf(bytes));
    ASSERT_TRUE(read.ok()) << message.index();
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(Encode(*read), bytes);
  }
}

TEST(WireMessages, LargestAskPagesFits) {
  const AskPages ask{.lease = std::string(kMaxNameBytes, 'l'),
                     .keys = std::vector<PageKey>(kMaxKeys)};
  EXPECT_TRUE(Decode(BytesOf(Encode(ask))).ok());
}

TEST(WireMessages, TruncatedOrOverlongMessagesAreRefused) {
  for (const WireMessage& message : MessageSamples()) {
    const std::string bytes = Encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(Decode(BytesOf(bytes.substr(0, size))).ok()) << message.index() << " " << size;
    }
    EXPECT_FALSE(Decode(BytesOf(bytes + '\0')).ok());
  }
}

TEST(WireMessages, MessagesBeyondTheLimitsAreRefused) {
  for (const WireMessage& message :
       {WireMessage(Hello{.pools = std::vector<PoolId>(kMaxPools + 1)}),
        WireMessage(AskPages{.keys = std::vector<PageKey>(kMaxKeys + 1)}),
        WireMessage(Release{std::string(kMaxNameBytes + 1, 'l')})}) {
    EXPECT_FALSE(Decode(BytesOf(Encode(message))).ok()) << message.index();
  }
  EXPECT_FALSE(Decode(BytesOf(std::string(kMaxMessageBytes + 1, '\xc0'))).ok());
}

TEST(WireMessages, MalformedMessagesAreRefused) {
  // Nil, a map, an array and a binary that claim to have 2^32 - 1 elements, deep arrays, an unknown
  // message number, and two messages with fields of wrong types.
  for (const std::string& bytes :
       {std::string("\xc0"), std::string("\x80"), std::string("\xdd\xff\xff\xff\xff"),
        std::string("\x92\x04\xc6\xff\xff\xff\xff"), std::string(1000, '\x91'),
        std::string("\x91\x63"), std::string("\x92\x03\x07"), std::string("\x92\x02\xff")}) {
    EXPECT_FALSE(Decode(BytesOf(bytes)).ok());
  }
}

}  // namespace
}  // namespace tandem
