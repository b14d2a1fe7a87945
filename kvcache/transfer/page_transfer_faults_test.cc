// Faults between two workers cost pages, but never cause wrong bytes or endless waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "base/log_testing.h"
#include "base/net/address.h"
#include "kvcache/transfer/page_transfer.h"
#include "kvcache/transfer/transfer_testing.h"
#include "kvcache/transfer/wire_messages.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr size_t kPageBytes = 4096;
const PoolId kTarget = TestPool("target");

// Fetches the text's pages from a lease of another worker. Returns the number of pages read.
int FetchFrom(PageTransfer* receiver, const PageTransfer::Remote& remote, const TestText& text) {
  const auto reader = receiver->Borrow(remote, "request-1");
  return ReadAll(reader.get(), kTarget, text, kPageBytes);
}

class PageTransferFaults : public testing::Test {
 protected:
  void Open(const PageTransfer::Options& sending, const PageTransfer::Options& receiving) {
    sender_ = OpenLoopback(sending);
    receiver_ = OpenLoopback(receiving);
    OfferAll(&sender_->offered(), "a", kTarget, text_, 20);
  }
  int Fetch() { return FetchFrom(receiver_.get(), RemoteOf(*sender_, "a"), text_); }

  // No page travels, and both sides count a refusal.
  void ExpectRefused() {
    EXPECT_EQ(Fetch(), 0);
    EXPECT_EQ(receiver_->stats().transfers_failed, 1);
    EXPECT_EQ(receiver_->stats().peers_refused, 1);
    while (sender_->stats().peers_refused == 0) std::this_thread::yield();
    EXPECT_EQ(sender_->stats().pages_sent, 0);
  }

  const TestText text_{kTarget, 100, 20, kPageBytes};
  std::unique_ptr<PageTransfer> sender_, receiver_;
};

// ---- Handshakes ----

TEST_F(PageTransferFaults, RefusesAPeerWithAnotherSecret) {
  PageTransfer::Options other = LoopbackOptions();
  other.secret = kOtherSecret;
  Open(LoopbackOptions(), other);
  ExpectRefused();
}

// While a secret is replaced, a file holds two. Each step of the rotation leaves every pair of
// workers able to connect.
TEST_F(PageTransferFaults, SecretsAreReplacedWithoutAGap) {
  const std::string one = kTestSecret, two = kOtherSecret;
  const std::vector<std::string> steps = {one, one + "\n" + two, two + "\n" + one, two};
  for (size_t step = 0; step + 1 < steps.size(); ++step) {
    PageTransfer::Options older = LoopbackOptions(), newer = LoopbackOptions();
    older.secret = steps[step];
    newer.secret = steps[step + 1];
    Open(older, newer);
    EXPECT_EQ(Fetch(), 20) << step;
    Open(newer, older);
    EXPECT_EQ(Fetch(), 20) << step;
  }
  PageTransfer::Options first = LoopbackOptions(), last = LoopbackOptions();
  first.secret = one;
  last.secret = two;
  Open(first, last);
  ExpectRefused();
}

TEST_F(PageTransferFaults, RefusesAPeerWithoutACommonPool) {
  PageTransfer::Options other = LoopbackOptions();
  other.pools = {TestPool("another target"), TestPool("another draft")};
  LogCapture log;
  Open(LoopbackOptions(), other);
  ExpectRefused();
  EXPECT_THAT(log.text(), HasSubstr("other models, options or instruction sets"));
  other.build = "another build";
  Open(LoopbackOptions(), other);
  ExpectRefused();
  EXPECT_THAT(log.text(), HasSubstr("it is another build of Tandem"));
}

TEST_F(PageTransferFaults, SendsOnlyPagesOfCommonPools) {
  PageTransfer::Options other = LoopbackOptions();
  other.pools = {kTarget, TestPool("another draft")};
  Open(LoopbackOptions(), other);
  const TestText draft(TestPool("draft"), 100, 3, kPageBytes);
  OfferAll(&sender_->offered(), "b", TestPool("draft"), draft, 3);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "b"), "request-1");
  EXPECT_EQ(ReadAll(reader.get(), TestPool("draft"), draft, kPageBytes), 0);
  EXPECT_EQ(receiver_->stats().pages_missing, 3);
  EXPECT_EQ(Fetch(), 20);
}

TEST_F(PageTransferFaults, PageOfAnotherPoolIsAMiss) {
  Open(LoopbackOptions(), LoopbackOptions());
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request-1");
  EXPECT_EQ(ReadAll(reader.get(), TestPool("draft"), text_, kPageBytes), 0);
}

TEST_F(PageTransferFaults, RefusesAnotherEngine) {
  Open(LoopbackOptions(), LoopbackOptions());
  PageTransfer::Remote remote = RemoteOf(*sender_, "a");
  remote.engine_id = receiver_->engine_id();
  EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0);
  EXPECT_EQ(receiver_->stats().peers_refused, 1);
  EXPECT_EQ(receiver_->stats().transfers_failed, 1);
  EXPECT_EQ(Fetch(), 20);  // the right engine id still works
}

TEST_F(PageTransferFaults, RefusesAnotherWireVersion) {
  Open(LoopbackOptions(), LoopbackOptions());
  receiver_ = *OpenTransfer(LoopbackOptions(), kWireVersion + 1);
  ExpectRefused();
}

// ---- Leases ----

TEST_F(PageTransferFaults, AnUnknownLeaseHasNoPages) {
  Open(LoopbackOptions(), LoopbackOptions());
  EXPECT_EQ(FetchFrom(receiver_.get(), RemoteOf(*sender_, "b"), text_), 0);
  EXPECT_EQ(receiver_->stats().pages_missing, 20);
  EXPECT_EQ(receiver_->stats().transfers, 1);
  EXPECT_EQ(receiver_->stats().transfers_failed, 0);
}

TEST_F(PageTransferFaults, DestroyingAReaderReleasesItsLease) {
  Open(LoopbackOptions(), LoopbackOptions());
  EXPECT_EQ(Fetch(), 20);
  while (sender_->offered().stats().leases > 0) std::this_thread::yield();
  EXPECT_EQ(sender_->offered().stats().leases_expired, 0);
  EXPECT_EQ(Fetch(), 0);
}

TEST_F(PageTransferFaults, ReadsThePagesThatALeaseHas) {
  Open(LoopbackOptions(), LoopbackOptions());
  OfferAll(&sender_->offered(), "b", kTarget, text_, 10);
  EXPECT_EQ(FetchFrom(receiver_.get(), RemoteOf(*sender_, "b"), text_), 10);
  EXPECT_EQ(receiver_->stats().pages_missing, 10);
  EXPECT_EQ(receiver_->stats().pages_received, 10);
}

TEST_F(PageTransferFaults, EvictingALeaseEndsReadsThatWaitForIt) {
  PageTransfer::Options small = LoopbackOptions();
  small.offered.max_bytes = 20 * kPageBytes;
  Open(small, LoopbackOptions());
  sender_->offered().Release("a");
  ASSERT_TRUE(sender_->offered().Open("b"));
  for (int i = 0; i < 15; ++i) Offer(&sender_->offered(), "b", kTarget, text_, i);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "b"), "request-1");
  int num_read = 0;
  reader->Read(kTarget, text_.refs(), kPageBytes, [&](int, absl::Span<const std::byte>) {
    if (++num_read == 15) {
      sender_->offered().Open("c");
      for (int i = 0; i < 20; ++i) Offer(&sender_->offered(), "c", kTarget, text_, i);
    }
    return true;
  });
  EXPECT_EQ(num_read, 15);
  EXPECT_EQ(sender_->stats().leases_evicted, 1);
  EXPECT_LE(sender_->stats().leased_bytes, int64_t{20 * kPageBytes});
}

TEST_F(PageTransferFaults, HeartbeatsKeepALeaseAlive) {
  PageTransfer::Options soon = LoopbackOptions();
  soon.offered.lease = absl::Seconds(30);
  FakeClock clock;
  Open(soon, soon);
  auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request-1");
  EXPECT_EQ(ReadAll(reader.get(), kTarget, text_, kPageBytes), 20);
  // A lease without a reader, to show that the clock expires leases.
  OfferAll(&sender_->offered(), "b", kTarget, text_, 1);
  for (int i = 0; i < 6; ++i) {
    clock.Advance(absl::Seconds(11));
    // This read's requests reach the sender after the heartbeat that is due.
    EXPECT_EQ(ReadAll(reader.get(), kTarget, text_, kPageBytes), 20);
  }
  EXPECT_EQ(sender_->offered().stats().leases, 1);
  EXPECT_EQ(sender_->offered().stats().leases_expired, 1);
}

// ---- Damage ----

TEST_F(PageTransferFaults, ADamagedPageIsAMiss) {
  Open(LoopbackOptions(), LoopbackOptions());
  const auto page = sender_->offered().Find("a", text_.refs()[7].key).page;
  const_cast<OfferedPage&>(*page).bytes[100] ^= std::byte{16};
  EXPECT_EQ(Fetch(), 7);
  EXPECT_EQ(receiver_->stats().pages_damaged, 1);
  EXPECT_EQ(receiver_->stats().pages_received, 7);
}

TEST_F(PageTransferFaults, APageOfAnotherSizeIsAMiss) {
  Open(LoopbackOptions(), LoopbackOptions());
  ASSERT_TRUE(sender_->offered().Open("b"));
  for (int i = 0; i < 3; ++i) Offer(&sender_->offered(), "b", kTarget, text_, i);
  sender_->offered().Add("b", kTarget, text_.refs()[3].key, 2 * kPageBytes,
                         [](absl::Span<std::byte>) {});
  sender_->offered().Complete("b");
  EXPECT_EQ(FetchFrom(receiver_.get(), RemoteOf(*sender_, "b"), text_), 3);
  EXPECT_EQ(receiver_->stats().pages_damaged, 1);
}

// ---- Peers that are missing or go away ----

TEST_F(PageTransferFaults, ConnectingToAPortWithoutListenerFails) {
  Open(LoopbackOptions(), LoopbackOptions());
  const PageTransfer::Remote remote = RemoteOf(*sender_, "a");
  sender_.reset();
  EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0);
  EXPECT_EQ(receiver_->stats().transfers_failed, 1);
}

TEST_F(PageTransferFaults, InvalidAddressFailsAtOnce) {
  Open(LoopbackOptions(), LoopbackOptions());
  PageTransfer::Remote remote = RemoteOf(*sender_, "a");
  for (const char* host : {"", "no address", "example.invalid", "127.0.0.1.1"}) {
    remote.host = host;
    EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0) << host;
  }
  remote = RemoteOf(*sender_, "a");
  remote.port = 65536;
  EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0);
  remote = RemoteOf(*sender_, "a");
  remote.engine_id = "";
  EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0);
}

TEST_F(PageTransferFaults, StoppedPeerEndsReadsAndItsSuccessorWorks) {
  Open(LoopbackOptions(), LoopbackOptions());
  ASSERT_TRUE(sender_->offered().Open("b"));
  for (int i = 0; i < 5; ++i) Offer(&sender_->offered(), "b", kTarget, text_, i);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "b"), "request-1");
  int num_read = 0;
  reader->Read(kTarget, text_.refs(), kPageBytes, [&](int, absl::Span<const std::byte>) {
    if (++num_read == 5) sender_.reset();
    return true;
  });
  EXPECT_EQ(num_read, 5);
  EXPECT_EQ(receiver_->stats().transfers_failed, 1);
  EXPECT_EQ(ReadAll(reader.get(), kTarget, text_, kPageBytes), 0);
  sender_ = OpenLoopback();
  OfferAll(&sender_->offered(), "a", kTarget, text_, 20);
  EXPECT_EQ(Fetch(), 20);
  EXPECT_EQ(receiver_->stats().transfers_failed, 1);
}

TEST_F(PageTransferFaults, StoppingEndsWaitingReads) {
  Open(LoopbackOptions(), LoopbackOptions());
  ASSERT_TRUE(sender_->offered().Open("b"));
  Offer(&sender_->offered(), "b", kTarget, text_, 0);
  std::vector<std::thread> threads;
  absl::Notification waits[3];
  for (absl::Notification& waits_now : waits) {
    threads.emplace_back([&] {
      const auto reader = receiver_->Borrow(RemoteOf(*sender_, "b"), "request-1");
      const int num_read =
          reader->Read(kTarget, text_.refs(), kPageBytes, [&](int, absl::Span<const std::byte>) {
            waits_now.Notify();
            return true;
          });
      EXPECT_EQ(num_read, 1);
    });
  }
  for (absl::Notification& waits_now : waits) waits_now.WaitForNotification();
  receiver_.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PageTransferFaults, SilentPeerTimesOut) {
  FakeClock clock;
  PageTransfer::Options patient = LoopbackOptions();
  patient.timeout = absl::Seconds(5);
  Open(LoopbackOptions(), patient);
  // A peer that listens but never sends a message.
  const Address silent = *ParseAddress("127.0.0.1", 0, Names::kRefused, "address");
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, silent.data(), silent.size()), 0);
  ASSERT_EQ(listen(listener, 5), 0);
  Address bound;
  socklen_t size = bound.capacity();
  getsockname(listener, bound.data(), &size);
  PageTransfer::Remote remote = RemoteOf(*sender_, "a");
  remote.port = bound.port();
  absl::Notification is_over;
  std::thread reads([&] {
    EXPECT_EQ(FetchFrom(receiver_.get(), remote, text_), 0);
    is_over.Notify();
  });
  while (!is_over.HasBeenNotified()) {
    clock.Advance(absl::Seconds(1));
    std::this_thread::yield();
  }
  reads.join();
  close(listener);
  EXPECT_EQ(receiver_->stats().transfers_failed, 1);
}

// ---- Other processes that are killed ----

// A worker in a child process, which runs `body` and then waits to be killed.
class Child {
 public:
  // `body` returns text for the parent, for instance an address to fetch from.
  template <typename Body>
  explicit Child(Body body) {
    std::array<int, 2> words;
    TANDEM_CHECK(pipe(words.data()) == 0);
    id_ = fork();
    TANDEM_CHECK(id_ >= 0);
    if (id_ == 0) {
      const std::string told = body();
      TANDEM_CHECK(write(words[1], told.data(), told.size()) == static_cast<ssize_t>(told.size()));
      close(words[1]);
      for (;;) pause();
    }
    close(words[1]);
    char letter = 0;
    while (read(words[0], &letter, 1) == 1) told_ += letter;
    close(words[0]);
  }
  ~Child() { Kill(); }
  void Kill() {
    if (id_ == 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = 0;
  }
  const std::string& told() const { return told_; }

 private:
  pid_t id_ = 0;
  std::string told_;
};

TEST_F(PageTransferFaults, KillingTheSenderEndsReads) {
  for (const size_t page_bytes : {kPageBytes, size_t{1} << 20}) {
    const TestText text(kTarget, 100, 20, page_bytes);
    Child child([&] {
      PageTransfer* const sender = OpenLoopback().release();
      sender->offered().Open("a");
      for (int i = 0; i < 19; ++i) Offer(&sender->offered(), "a", kTarget, text, i);
      return absl::StrCat(sender->port(), " ", sender->engine_id());
    });
    const auto receiver = OpenLoopback();
    const std::vector<std::string> told = absl::StrSplit(child.told(), ' ');
    const PageTransfer::Remote remote{
        .host = "127.0.0.1", .port = std::stoi(told[0]), .engine_id = told[1], .lease = "a"};
    const auto reader = receiver->Borrow(remote, "request-1");
    int num_read = 0;
    reader->Read(kTarget, text.refs(), page_bytes, [&](int i, absl::Span<const std::byte> bytes) {
      EXPECT_EQ(bytes, absl::MakeConstSpan(text.bytes(i)));
      if (++num_read == 3) child.Kill();
      return true;
    });
    EXPECT_GE(num_read, 3);
    EXPECT_LE(num_read, 19);
    EXPECT_EQ(receiver->stats().transfers_failed, 1);
    EXPECT_EQ(receiver->stats().pages_damaged, 0);
  }
}

TEST_F(PageTransferFaults, LeaseOfAKilledReceiverExpires) {
  std::array<int, 2> words;
  ASSERT_EQ(pipe(words.data()), 0);
  Child child([&] {
    // The address comes through the pipe, because the parent must fork before it starts threads.
    std::thread([&] {
      std::string told(1000, ' ');
      told.resize(read(words[0], told.data(), told.size()));
      const std::vector<std::string> parts = absl::StrSplit(told, ' ');
      PageTransfer* const receiver = OpenLoopback().release();
      auto* const reader = receiver
                               ->Borrow({.host = "127.0.0.1",
                                         .port = std::stoi(parts[0]),
                                         .engine_id = parts[1],
                                         .lease = "a"},
                                        "request-1")
                               .release();
      ReadAll(reader, kTarget, text_, kPageBytes);
    }).detach();
    return std::string();
  });
  FakeClock clock;
  sender_ = OpenLoopback();
  OfferAll(&sender_->offered(), "a", kTarget, text_, 20);
  const std::string tell = absl::StrCat(sender_->port(), " ", sender_->engine_id());
  ASSERT_EQ(write(words[1], tell.data(), tell.size()), static_cast<ssize_t>(tell.size()));
  while (sender_->stats().pages_sent < 20) std::this_thread::yield();
  child.Kill();
  EXPECT_EQ(sender_->stats().leases, 1);
  clock.Advance(absl::Seconds(31));
  EXPECT_EQ(sender_->stats().leases, 0);
  EXPECT_EQ(sender_->stats().leases_expired, 1);
  close(words[0]);
  close(words[1]);
}

}  // namespace
}  // namespace tandem
