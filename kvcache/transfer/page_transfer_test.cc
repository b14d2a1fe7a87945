#include "kvcache/transfer/page_transfer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kvcache/store/stored_cache.h"
#include "kvcache/store/stored_cache_testing.h"
#include "kvcache/transfer/transfer_testing.h"

namespace tandem {
namespace {

const PoolId kPool = TestPool("target");

class PageTransferTest : public testing::Test {
 protected:
  int Fetch(const std::string& lease, const TestText& text, size_t page_bytes) {
    const auto reader = receiver_->Borrow(RemoteOf(*sender_, lease), "request");
    return ReadAll(reader.get(), kPool, text, page_bytes);
  }

  std::unique_ptr<PageTransfer> sender_ = OpenLoopback();
  std::unique_ptr<PageTransfer> receiver_ = OpenLoopback();
};

TEST_F(PageTransferTest, FetchesPagesOfEverySize) {
  for (const size_t page_bytes : {1, 17, 4096, 70000, 1572864}) {
    for (const int num_pages : {0, 1, 10, page_bytes < 70000 ? 2500 : 20}) {
      const TestText text(kPool, 100, num_pages, page_bytes);
      const std::string lease = absl::StrCat(page_bytes, "-", num_pages);
      OfferAll(&sender_->offered(), lease, kPool, text, num_pages);
      EXPECT_EQ(Fetch(lease, text, page_bytes), num_pages) << lease;
    }
  }
  EXPECT_EQ(receiver_->stats().transfers, 15);  // reading zero pages is not a transfer
  EXPECT_EQ(receiver_->stats().transfers_failed, 0);
  EXPECT_EQ(receiver_->stats().pages_damaged, 0);
  EXPECT_EQ(receiver_->stats().pages_missing, 0);
}

TEST_F(PageTransferTest, FetchesTheStatesOfPages) {
  CacheWithStates first, second;
  StoredCache from(first.cache.get(), {.id = kPool}, nullptr);
  StoredCache to(second.cache.get(), {.id = kPool}, nullptr);
  first.PublishText();
  ASSERT_TRUE(sender_->offered().Open("a"));
  from.ForPublished(first.text, /*variant=*/0, /*salt=*/nullptr, 0,
                    [&](const PageKey& key, Backend::CopyPage copy) {
                      return sender_->offered().Add("a", kPool, key, first.kLayout.page_bytes(),
                                                    copy);
                    });
  sender_->offered().Complete("a");
  const StoredRun run = to.Missing(second.text, /*variant=*/0, /*salt=*/nullptr);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request");
  reader->Read(run.pool, run.pages, run.page_bytes,
               [&](int page, absl::Span<const std::byte> bytes) {
                 return to.Insert(run, page, {&bytes, 1}) == 1;
               });
  EXPECT_TRUE(second.HasText());
}

TEST_F(PageTransferTest, CountsPagesAndBytesOnBothSides) {
  const TestText text(kPool, 100, 12, 1000);
  OfferAll(&sender_->offered(), "a", kPool, text, 12);
  EXPECT_EQ(Fetch("a", text, 1000), 12);
  while (sender_->stats().pages_sent < 12) std::this_thread::yield();
  const TransferCounts sent = sender_->stats();
  const TransferCounts received = receiver_->stats();
  EXPECT_EQ(sent.pages_sent, 12);
  EXPECT_EQ(sent.bytes_sent, 12000);
  EXPECT_EQ(sent.transfers, 0);
  EXPECT_EQ(received.pages_received, 12);
  EXPECT_EQ(received.bytes_received, 12000);
  EXPECT_EQ(received.pages_sent, 0);
  EXPECT_EQ(received.transfers, 1);
  EXPECT_GE(received.receiving_seconds, 0.0);
}

TEST_F(PageTransferTest, WaitsForPagesStillBeingComputed) {
  const TestText text(kPool, 100, 30, 5000);
  ASSERT_TRUE(sender_->offered().Open("a"));
  Offer(&sender_->offered(), "a", kPool, text, 0);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request");
  // Each page is computed only after the previous one has been taken, so it is not available when
  // it is asked for.
  const int num_read =
      reader->Read(kPool, text.refs(), 5000, [&](int index, absl::Span<const std::byte> bytes) {
        EXPECT_EQ(bytes, absl::MakeConstSpan(text.bytes(index)));
        if (index + 1 < 30) Offer(&sender_->offered(), "a", kPool, text, index + 1);
        return true;
      });
  EXPECT_EQ(num_read, 30);
}

TEST_F(PageTransferTest, StopsAfterTheLastComputedPage) {
  const TestText text(kPool, 100, 30, 5000);
  ASSERT_TRUE(sender_->offered().Open("a"));
  Offer(&sender_->offered(), "a", kPool, text, 0);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request");
  const int num_read = reader->Read(kPool, text.refs(), 5000, [&](int, auto) {
    sender_->offered().Complete("a");
    return true;
  });
  EXPECT_EQ(num_read, 1);
  EXPECT_EQ(receiver_->stats().transfers_failed, 0);
}

TEST_F(PageTransferTest, StopsWhenTheCallbackReturnsFalse) {
  const TestText text(kPool, 100, 2500, 100000);
  const TestText other(kPool, 7, 3, 100000);
  OfferAll(&sender_->offered(), "a", kPool, text, 2500);
  OfferAll(&sender_->offered(), "b", kPool, other, 3);
  const auto reader = receiver_->Borrow(RemoteOf(*sender_, "a"), "request");
  EXPECT_EQ(reader->Read(kPool, text.refs(), 100000, [](int index, auto) { return index < 9; }),
            10);
  EXPECT_EQ(Fetch("b", other, 100000), 3);
  EXPECT_LT(sender_->stats().pages_sent, 200);  // about two windows
}

TEST_F(PageTransferTest, ServesSeveralReadersAndPeersAtOnce) {
  const auto other_sender = OpenLoopback();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    PageTransfer* const sender = i % 2 == 0 ? sender_.get() : other_sender.get();
    threads.emplace_back([this, i, sender] {
      const size_t page_bytes = i < 4 ? 3000 : 200000;
      const TestText text(kPool, 1000 * i, 150, page_bytes);
      const std::string lease = absl::StrCat("lease ", i);
      ASSERT_TRUE(sender->offered().Open(lease));
      std::thread computes([&] {
        for (int page = 0; page < 150; ++page) Offer(&sender->offered(), lease, kPool, text, page);
        sender->offered().Complete(lease);
      });
      const auto reader = receiver_->Borrow(RemoteOf(*sender, lease), "request");
      EXPECT_EQ(ReadAll(reader.get(), kPool, text, page_bytes), 150);
      computes.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(receiver_->stats().transfers, 8);
  EXPECT_EQ(receiver_->stats().transfers_failed, 0);
}

TEST_F(PageTransferTest, FetchesInBothDirections) {
  const TestText text(kPool, 100, 12, 1000);
  OfferAll(&sender_->offered(), "a", kPool, text, 12);
  OfferAll(&receiver_->offered(), "a", kPool, text, 12);
  EXPECT_EQ(Fetch("a", text, 1000), 12);
  std::swap(sender_, receiver_);
  EXPECT_EQ(Fetch("a", text, 1000), 12);
}

TEST(PageTransferOpen, RejectsInvalidOptions) {
  struct Case {
    std::string host, secret, message;
  };
  for (const Case& c : std::vector<Case>{
           {"0.0.0.0", kTestSecret,
            "kv_transfer: must be an address at which other workers reach this one, got 0.0.0.0"},
           {"::", kTestSecret,
            "kv_transfer: must be an address at which other workers reach this one, got ::"},
           {"127.0.0.1", "", "kv_transfer_secret: the secret must have from 32 to 1000 characters"},
           {"no host", kTestSecret, "kv_transfer: must be an address or a name"}}) {
    PageTransfer::Options options = LoopbackOptions();
    options.host = c.host;
    options.secret = c.secret;
    const absl::Status status = PageTransfer::Open(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StartsWith(status.message(), c.message)) << status;
  }
  PageTransfer::Options options = LoopbackOptions();
  options.pools.clear();
  EXPECT_EQ(PageTransfer::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = LoopbackOptions();
  options.port = 65536;
  EXPECT_EQ(PageTransfer::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = LoopbackOptions();
  options.host = "192.0.2.1";  // reserved for documentation (RFC 5737)
  EXPECT_EQ(PageTransfer::Open(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(PageTransferOpen, RefusesAFabricAtALoopbackAddress) {
  PageTransfer::Options options = LoopbackOptions();
  options.fabric = "ucx";
  EXPECT_EQ(PageTransfer::Open(options).status().message(),
            "kv_transfer_fabric: must be tcp at a loopback address, got ucx at 127.0.0.1");
  options.fabric = "udp";
  EXPECT_EQ(PageTransfer::Open(options).status().message(),
            "kv_transfer_fabric: must be tcp or ucx, got udp");
  options.fabric = "ucx";
  options.host = "192.0.2.1";  // reserved for documentation (RFC 5737)
  EXPECT_TRUE(absl::StartsWith(PageTransfer::Open(options).status().message(), "kv_transfer"));
}

TEST(PageTransferOpen, RefusesAPortInUse) {
  const auto first = OpenLoopback();
  PageTransfer::Options options = LoopbackOptions();
  options.port = first->port();
  EXPECT_EQ(PageTransfer::Open(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(PageTransferOpen, EngineIdsAreUnique) {
  const auto first = OpenLoopback();
  const auto second = OpenLoopback();
  EXPECT_EQ(first->engine_id().size(), 32);
  EXPECT_NE(first->engine_id(), second->engine_id());
  EXPECT_EQ(first->host(), "127.0.0.1");
  EXPECT_GT(first->port(), 0);
}

TEST(PageTransferOpen, PrintsNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  {
    const auto first = OpenLoopback();
    PageTransfer::Options options = LoopbackOptions();
    options.port = first->port();
    EXPECT_FALSE(PageTransfer::Open(options).ok());
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tandem
