#include "kvcache/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kvcache/store/store_testing.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr size_t kPageBytes = 15000;

class SqliteStoreTest : public testing::Test {
 protected:
  std::shared_ptr<PageStore> Open(int64_t max_bytes = 16 * kMebibyte) {
    auto store = OpenSqliteStore(
        {.folder = folder_.path(), .max_bytes = max_bytes, .now = [this] { return now_; }});
    TANDEM_CHECK(store.ok());
    return *std::move(store);
  }
  TestText Text(int first_token, int num_pages, absl::string_view pool = "target") {
    return TestText(TestPool(pool), first_token, num_pages, kPageBytes);
  }
  // Returns how many pages of the text can be read. Expects the right bytes in each.
  static int NumRead(PageStore* store, const TestText& text, absl::string_view pool = "target") {
    return store->Read(TestPool(pool), text.refs(), kPageBytes,
                       [&](int i, absl::Span<const std::byte> bytes) {
                         EXPECT_TRUE(bytes == absl::MakeConstSpan(text.bytes(i)));
                         return true;
                       });
  }
  static absl::Status Write(PageStore* store, const TestText& text,
                            absl::string_view pool = "target") {
    return store->Write({.id = TestPool(pool), .description = std::string(pool)}, text.pages());
  }

  TestFolder folder_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(SqliteStoreTest, ReturnsWrittenPagesAfterARestart) {
  const TestText text = Text(100, 5);
  {
    const auto store = Open();
    EXPECT_EQ(store->Find(text.refs()), 0);
    EXPECT_TRUE(Write(store.get(), text).ok());
    EXPECT_EQ(store->stats().pages_written, 5);
  }
  const auto store = Open();
  EXPECT_EQ(store->Find(text.refs()), 5);
  EXPECT_EQ(NumRead(store.get(), text), 5);
  EXPECT_EQ(store->stats().pages_read, 5);
  EXPECT_EQ(store->stats().pages_damaged, 0);
  // Writing them again adds nothing.
  EXPECT_TRUE(Write(store.get(), text).ok());
  EXPECT_EQ(store->stats().pages_written, 0);
}

TEST_F(SqliteStoreTest, StopsWhereAPageIsMissing) {
  const auto store = Open();
  const TestText text = Text(100, 5);
  const std::vector<PageToWrite> without_third = {text.pages()[0], text.pages()[1],
                                                  text.pages()[3]};
  ASSERT_TRUE(store->Write({.id = TestPool("target")}, without_third).ok());
  EXPECT_EQ(store->Find(text.refs()), 2);
  EXPECT_EQ(NumRead(store.get(), text), 2);
  // Another text, another pool and another tenant find no page.
  EXPECT_EQ(store->Find(Text(101, 5).refs()), 0);
  EXPECT_EQ(store->Find(Text(100, 5, "draft").refs()), 0);
  EXPECT_EQ(store->Find(TestText(TestPool("target"), 100, 5, kPageBytes, "salt").refs()), 0);
}

TEST_F(SqliteStoreTest, StopsReadingWhenTheCallbackReturnsFalse) {
  const auto store = Open();
  const TestText text = Text(100, 5);
  ASSERT_TRUE(Write(store.get(), text).ok());
  const int num_read = store->Read(TestPool("target"), text.refs(), kPageBytes,
                                   [](int i, absl::Span<const std::byte>) { return i < 2; });
  EXPECT_EQ(num_read, 2);
}

// Row 181 of the bug catalogue.
TEST_F(SqliteStoreTest, DistinguishesPagesWithEqualKeys) {
  const auto store = Open();
  const TestText text = Text(100, 1);
  ASSERT_TRUE(Write(store.get(), text).ok());
  // Simulates a hash collision: the tokens are compared.
  const std::vector<TokenId> others = {7, 8, 9, 10};
  PageRef other = text.refs()[0];
  other.tokens = others;
  EXPECT_EQ(store->Read(TestPool("target"), {&other, 1}, kPageBytes,
                        [](int, absl::Span<const std::byte>) { return true; }),
            0);
  EXPECT_EQ(store->stats().pages_damaged, 1);
}

TEST_F(SqliteStoreTest, EvictsTheLeastRecentRunsFromTheirEnds) {
  const auto store = Open(3 * kMebibyte / 2);
  // Each page takes 16 KiB, so about 80 fit.
  const TestText first = Text(1000, 20), second = Text(2000, 20), third = Text(3000, 20);
  for (const TestText* text : {&first, &second, &third}) {
    now_ += absl::Hours(1);
    ASSERT_TRUE(Write(store.get(), *text).ok());
  }
  EXPECT_EQ(store->stats().pages_evicted, 0);
  now_ += absl::Hours(1);
  store->Touch(first.refs());
  now_ += absl::Hours(1);
  ASSERT_TRUE(Write(store.get(), Text(4000, 30)).ok());
  EXPECT_EQ(store->Find(first.refs()), 20);
  EXPECT_EQ(store->Find(third.refs()), 20);
  const int left = store->Find(second.refs());
  EXPECT_LT(left, 20);
  EXPECT_GT(left, 0);
  EXPECT_EQ(NumRead(store.get(), second), left);
  EXPECT_EQ(store->stats().pages_evicted, 20 - left);
}

// A text that is written piece by piece is evicted as one.
TEST_F(SqliteStoreTest, EvictsATextFromItsEndWheneverItsPagesWereWritten) {
  const auto store = Open(3 * kMebibyte / 2);
  const TestText text = Text(1000, 40);
  for (int i = 0; i < 40; ++i) {
    now_ += absl::Hours(1);
    ASSERT_TRUE(store->Write({.id = TestPool("target")}, text.pages().subspan(i, 1)).ok());
  }
  now_ += absl::Hours(1);
  ASSERT_TRUE(Write(store.get(), Text(4000, 50)).ok());
  const int left = store->Find(text.refs());
  EXPECT_GT(left, 0);
  for (int i = left; i < 40; ++i) EXPECT_EQ(store->Find(text.refs().subspan(i, 1)), 0) << i;
}

// When the clock is set back, old pages are still evicted before new ones.
TEST_F(SqliteStoreTest, OrdersByUseWhenTheClockIsSetBack) {
  const auto store = Open(3 * kMebibyte / 2);
  const TestText first = Text(1000, 30), second = Text(2000, 30);
  ASSERT_TRUE(Write(store.get(), first).ok());
  now_ -= absl::Hours(1000);
  ASSERT_TRUE(Write(store.get(), second).ok());
  ASSERT_TRUE(Write(store.get(), Text(4000, 30)).ok());
  EXPECT_LT(store->Find(first.refs()), 30);
  EXPECT_EQ(store->Find(second.refs()), 30);
}

TEST_F(SqliteStoreTest, StaysWithinItsSizeLimit) {
  const auto store = Open(4 * kMebibyte);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Write(store.get(), Text(1000 * i, 10 + i % 5)).ok()) << i;
    const auto size = std::filesystem::file_size(folder_.path() + "/pages-2.sqlite");
    ASSERT_LE(size, 4 * kMebibyte);
  }
  EXPECT_EQ(store->Find(Text(39000, 14).refs()), 14);
  const TestText page(TestPool("target"), 0, 1, 4 * kMebibyte);
  const absl::Status status = Write(store.get(), page);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(SqliteStoreTest, KeepsTheBeginningOfATextLargerThanItself) {
  for (const int batch : {120, 50, 30, 7, 1}) {
    const std::string pool = absl::StrCat("batches of ", batch);
    const TestText text = Text(1000, 120, pool);  // at 16 KiB a page, about 80 fit
    const auto store = Open(3 * kMebibyte / 2);
    for (int i = 0; i < 120; i += batch) {
      now_ += absl::Seconds(1);
      const absl::Status status =
          store->Write({.id = TestPool(pool)}, text.pages().subspan(i, batch));
      ASSERT_TRUE(status.ok()) << status << ", " << pool << " at " << i;
    }
    EXPECT_GT(store->Find(text.refs()), 15) << pool;
  }
}

// Pages of one model may not fit the gaps that another model's pages leave. More pages are then
// evicted, and no write fails.
TEST_F(SqliteStoreTest, HoldsPagesOfManySizes) {
  const auto store = Open(4 * kMebibyte);
  for (int i = 0; i < 200; ++i) {
    const size_t page_bytes = i % 3 == 0 ? 300 : i % 3 == 1 ? 9000 : 150000;
    const TestText text(TestPool("target"), 1000 * i, 1 + i % 4, page_bytes);
    ASSERT_TRUE(Write(store.get(), text).ok()) << i;
    ASSERT_EQ(store->Find(text.refs()), 1 + i % 4);
  }
}

TEST_F(SqliteStoreTest, ListsAndRemovesPools) {
  const auto store = Open();
  ASSERT_TRUE(Write(store.get(), Text(100, 5)).ok());
  now_ += absl::Hours(48);
  const TestText drafts = Text(100, 3, "draft");
  ASSERT_TRUE(store
                  ->Write({.id = TestPool("draft"), .description = "d", .tokens_per_second = 50},
                          drafts.pages())
                  .ok());
  EXPECT_EQ(NumRead(store.get(), drafts, "draft"), 3);
  store->Touch(drafts.refs());
  auto pools = store->Pools();
  ASSERT_TRUE(pools.ok());
  ASSERT_EQ(pools->size(), 2);
  EXPECT_EQ((*pools)[0].id, TestPool("target"));
  EXPECT_EQ((*pools)[0].pages, 5);
  EXPECT_GE((*pools)[0].bytes, 5 * int64_t{kPageBytes});
  EXPECT_EQ((*pools)[0].hits, 0);
  EXPECT_EQ((*pools)[1].description, "d");
  EXPECT_EQ((*pools)[1].hits, 3);
  EXPECT_EQ((*pools)[1].tokens_per_second, 50);
  EXPECT_EQ((*pools)[1].last_used, now_);

  EXPECT_EQ(*store->RemoveOlderThan(now_ - absl::Hours(24)), 5);
  pools = store->Pools();
  ASSERT_EQ(pools->size(), 1);
  EXPECT_EQ((*pools)[0].id, TestPool("draft"));
  EXPECT_EQ(*store->RemovePool(TestPool("target")), 0);
  EXPECT_EQ(*store->RemovePool(TestPool("draft")), 3);
  EXPECT_TRUE(store->Pools()->empty());
  EXPECT_EQ(store->Find(drafts.refs()), 0);
}

TEST_F(SqliteStoreTest, MayBeOpenTwiceInAProcess) {
  const auto one = Open(), other = Open();
  const TestText text = Text(100, 5);
  ASSERT_TRUE(Write(one.get(), text).ok());
  EXPECT_EQ(NumRead(other.get(), text), 5);
  ASSERT_TRUE(Write(other.get(), Text(200, 5)).ok());
  EXPECT_EQ(*one->RemovePool(TestPool("target")), 10);
  EXPECT_EQ(other->Find(text.refs()), 0);
}

TEST_F(SqliteStoreTest, ErrorNamesAFolderThatCannotBeCreated) {
  const auto store = OpenSqliteStore({.folder = "/proc/no/store"});
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("/proc/no/store"));
}

}  // namespace
}  // namespace tandem
