#include "kvcache/events/kv_event_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/folder_testing.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Batches differ only in their time.
KvEventBatch Batch(int number) {
  return {.time = static_cast<double>(number), .events = {PagesRemoved{}}};
}

std::string NumberText(int64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(number) >> shift));
  }
  return bytes;
}

class KvEventPublisherTest : public ::testing::Test {
 protected:
  std::string NewEndpoint() {
    return absl::StrCat("ipc://", folder_.Path(absl::StrCat(num_endpoints_++)));
  }

  void Start(KvEventOptions options = {}) {
    options.endpoint = NewEndpoint();
    options.replay_endpoint = NewEndpoint();
    options_ = options;
    ASSERT_OK_AND_ASSIGN(publisher_, StartKvEventPublisher(options));
  }

  // Returns a subscriber, once the publisher has registered it.
  zmq::socket_t Subscribed(const std::string& topic = "") {
    zmq::socket_t socket(context_, zmq::socket_type::sub);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::subscribe, topic);
    socket.connect(options_.endpoint);
    for (;; ++num_sent_) {  // until one arrives
      publisher_->Publish(Batch(static_cast<int>(num_sent_)));
      zmq::pollitem_t wait = {socket.handle(), 0, ZMQ_POLLIN, 0};
      if (zmq::poll(&wait, 1, std::chrono::milliseconds(10)) > 0) break;
    }
    const int64_t last = num_sent_++;
    while (Received(&socket)[1] != NumberText(last)) continue;
    return socket;
  }

  static std::vector<std::string> Received(zmq::socket_t* socket) {
    std::vector<std::string> frames;
    zmq::message_t message;
    do {
      EXPECT_TRUE(socket->recv(message).has_value());
      frames.push_back(message.to_string());
    } while (message.more());
    return frames;
  }

  // Returns the numbers of the batches replayed from `first` on; the last is -1.
  std::vector<int64_t> Replayed(int64_t first) {
    std::vector<int64_t> numbers;
    zmq::socket_t dealer(context_, zmq::socket_type::dealer);
    dealer.set(zmq::sockopt::linger, 0);
    dealer.connect(options_.replay_endpoint);
    dealer.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
    dealer.send(zmq::buffer(NumberText(first)));
    for (;;) {
      const std::vector<std::string> answer = Received(&dealer);
      EXPECT_THAT(answer, ElementsAre("", options_.topic, testing::SizeIs(8), testing::_));
      uint64_t number = 0;
      for (const char byte : answer[2]) number = number << 8 | static_cast<uint8_t>(byte);
      numbers.push_back(static_cast<int64_t>(number));
      if (numbers.back() == -1) {
        EXPECT_EQ(answer[3], "");
        return numbers;
      }
      EXPECT_EQ(answer[3], Encoded(Batch(static_cast<int>(number))));
    }
  }

  zmq::context_t context_;
  KvEventOptions options_;
  std::unique_ptr<KvEventPublisher> publisher_;
  int64_t num_sent_ = 0;
  const TestFolder folder_;
  int num_endpoints_ = 0;
};

TEST_F(KvEventPublisherTest, SendsTopicNumberAndBatchInOrder) {
  Start({.topic = "kv@pod@model"});
  zmq::socket_t subscriber = Subscribed("kv@");
  for (int i = 0; i < 100; ++i) {
    publisher_->Publish(Batch(static_cast<int>(num_sent_)));
    EXPECT_THAT(Received(&subscriber), ElementsAre("kv@pod@model", NumberText(num_sent_),
                                                   Encoded(Batch(static_cast<int>(num_sent_)))));
    ++num_sent_;
  }
  EXPECT_EQ(publisher_->stats().published, num_sent_);
  EXPECT_EQ(publisher_->stats().lost, 0);
}

TEST_F(KvEventPublisherTest, ReplaysKeptBatches) {
  Start({.topic = "t", .max_kept = 3});
  Subscribed("t");  // so that all earlier batches are sent
  while (num_sent_ < 5) publisher_->Publish(Batch(static_cast<int>(num_sent_++)));
  zmq::socket_t subscriber = Subscribed("t");
  const int64_t end = num_sent_;
  EXPECT_THAT(Replayed(0), ElementsAre(end - 3, end - 2, end - 1, -1));
  EXPECT_THAT(Replayed(end - 1), ElementsAre(end - 1, -1));
  EXPECT_THAT(Replayed(end), ElementsAre(-1));
}

TEST_F(KvEventPublisherTest, KeepsNoMoreBytesThanAllowed) {
  Start({.max_kept_bytes = Encoded(Batch(0)).size()});
  zmq::socket_t subscriber = Subscribed();
  EXPECT_THAT(Replayed(0), ElementsAre(num_sent_ - 1, -1));
}

TEST_F(KvEventPublisherTest, LosesBatchesWhenTheQueueIsFull) {
  Start({.max_queued = 0});
  for (int i = 0; i < 3; ++i) publisher_->Publish(Batch(i));
  EXPECT_EQ(publisher_->stats().lost, 3);
  EXPECT_EQ(publisher_->stats().published, 0);
}

TEST_F(KvEventPublisherTest, ASubscriberThatNeverReadsDoesNotDelayOthers) {
  Start({.max_queued = 1 << 20});
  zmq::socket_t sleeper(context_, zmq::socket_type::sub);
  sleeper.set(zmq::sockopt::linger, 0);
  sleeper.set(zmq::sockopt::rcvhwm, 1);
  sleeper.set(zmq::sockopt::subscribe, "");
  sleeper.connect(options_.endpoint);
  zmq::socket_t reader = Subscribed();
  constexpr int kNumBatches = 20'000;
  for (int i = 0; i < kNumBatches; ++i) publisher_->Publish(Batch(i));
  for (int i = 0; i < kNumBatches; ++i) {
    ASSERT_EQ(Received(&reader)[1], NumberText(num_sent_ + i));
  }
}

TEST_F(KvEventPublisherTest, IgnoresMalformedRequests) {
  Start();
  zmq::socket_t subscriber = Subscribed();
  zmq::socket_t client(context_, zmq::socket_type::dealer);
  client.set(zmq::sockopt::linger, 0);
  client.connect(options_.replay_endpoint);
  client.send(zmq::str_buffer("12345678"));  // no delimiter
  client.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
  client.send(zmq::str_buffer("1234567"));
  client.send(zmq::str_buffer("x"), zmq::send_flags::sndmore);
  client.send(zmq::str_buffer("12345678"));
  EXPECT_THAT(Replayed(num_sent_), ElementsAre(-1));
  zmq::message_t answer;
  EXPECT_FALSE(client.recv(answer, zmq::recv_flags::dontwait).has_value());
}

TEST_F(KvEventPublisherTest, NamesTheEndpointThatCannotBeBound) {
  Start();
  KvEventOptions options = options_;
  options.endpoint = "tcp://no.such.name.invalid:5557";
  EXPECT_THAT(std::string(StartKvEventPublisher(options).status().message()),
              HasSubstr("kv_events: cannot bind tcp://no.such.name.invalid:5557: "));
  options.endpoint = "nonsense";
  EXPECT_THAT(std::string(StartKvEventPublisher(options).status().message()),
              HasSubstr("kv_events: cannot bind nonsense: "));
  zmq::socket_t taken(context_, zmq::socket_type::rep);
  taken.bind("tcp://127.0.0.1:*");
  options.endpoint = NewEndpoint();
  options.replay_endpoint = taken.get(zmq::sockopt::last_endpoint);
  EXPECT_THAT(std::string(StartKvEventPublisher(options).status().message()),
              AllOf(HasSubstr(absl::StrCat("kv_events_replay: cannot bind ",
                                           options.replay_endpoint, ": ")),
                    HasSubstr("in use")));
}

PageKey KeyOf(int number) {
  PageKey key;
  key.bytes.fill(static_cast<std::byte>(number));
  return key;
}

// msgspec.msgpack.encode of vLLM's classes with the same fields: keys of 32 bytes, "GPU", rank 0.
constexpr char kOfMsgspec[] =
    "93cb3ff80000000000009488a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392c4"
    "200101010101010101010101010101010101010101010101010101010101010101c420020202020202020202"
    "0202020202020202020202020202020202020202020202b1706172656e745f626c6f636b5f68617368c0a974"
    "6f6b656e5f69647394007fcc80ccffaa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3"
    "475055a96c6f72615f6e616d65c088a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865"
    "7391c4200303030303030303030303030303030303030303030303030303030303030303b1706172656e745f"
    "626c6f636b5f68617368c4200202020202020202020202020202020202020202020202020202020202020202"
    "a9746f6b656e5f69647392cd0100ce00011170aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d6564"
    "69756da3475055a96c6f72615f6e616d65c089a474797065ab426c6f636b53746f726564ac626c6f636b5f68"
    "617368657392c4200404040404040404040404040404040404040404040404040404040404040404c4200505"
    "050505050505050505050505050505050505050505050505050505050505b1706172656e745f626c6f636b5f"
    "68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6501a76c6f72615f6964c0a66d656469"
    "756da3475055a96c6f72615f6e616d65c0aa65787472615f6b6579739291a26162c083a474797065ac426c6f"
    "636b52656d6f766564ac626c6f636b5f68617368657392c42001010101010101010101010101010101010101"
    "01010101010101010101010101c4200404040404040404040404040404040404040404040404040404040404"
    "040404a66d656469756da347505500";

TEST(KvEventBatch, IsEncodedAsMsgspecEncodesVllms) {
  const KvEventBatch batch = {
      .time = 1.5,
      .events = {PagesStored{.pages = {KeyOf(1), KeyOf(2)}, .tokens = {0, 127, 128, 255}},
                 PagesStored{.pages = {KeyOf(3)}, .parent = KeyOf(2), .tokens = {256, 70000}},
                 PagesStored{.pages = {KeyOf(4), KeyOf(5)}, .tokens = {1, 2}, .tenant = "ab"},
                 PagesRemoved{.pages = {KeyOf(1), KeyOf(4)}}}};
  EXPECT_EQ(absl::BytesToHexString(Encoded(batch)), kOfMsgspec);
}

TEST(KvEventBatch, EncodingDependsOnTheTime) {
  KvEventBatch batch = {.time = 1.5, .events = {PagesRemoved{}}};
  const std::string before = Encoded(batch);
  batch.time = 2.5;
  EXPECT_NE(Encoded(batch), before);
}

}  // namespace
}  // namespace tandem
