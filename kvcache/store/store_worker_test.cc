#include "kvcache/store/store_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kvcache/store/store_testing.h"

namespace tandem {
namespace {

constexpr size_t kSmallPage = 1000;

// A store whose writes wait until the test permits them.
class GatedStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  absl::Notification is_writing, may_write;
  absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) override {
    if (!is_writing.HasBeenNotified()) is_writing.Notify();
    may_write.WaitForNotification();
    return WrappedStore::Write(pool, pages);
  }
};

class StoreWorkerTest : public testing::Test {
 protected:
  std::shared_ptr<PageStore> Open() { return *OpenSqliteStore({.folder = folder_.path()}); }
  static void Queue(StoreWorker* worker, int pool, const TestText& text) {
    for (const PageToWrite& page : text.pages()) {
      worker->Write(pool, page.parent, page.page.key, page.page.depth, page.page.tokens, kSmallPage,
                    [&](absl::Span<std::byte> into) {
                      std::copy(page.bytes.begin(), page.bytes.end(), into.begin());
                    });
    }
  }
  static StoredRun RunOf(const TestText& text) {
    StoredRun run{.pool = TestPool("target"), .page_bytes = kSmallPage};
    for (const PageRef& page : text.refs()) {
      run.tokens.insert(run.tokens.end(), page.tokens.begin(), page.tokens.end());
    }
    run.pages.assign(text.refs().begin(), text.refs().end());
    return run;
  }

  TestFolder folder_;
};

TEST_F(StoreWorkerTest, WritesAndReadsPages) {
  const TestText text(TestPool("target"), 100, 9, kSmallPage);
  const auto store = Open();
  StoreWorker worker(store, {});
  const int pool = worker.AddPool({.id = TestPool("target")});
  Queue(&worker, pool, text);
  worker.AwaitWritten();
  EXPECT_EQ(store->Find(text.refs()), 9);
  std::vector<StoredRun> runs;
  runs.push_back(RunOf(text));
  const std::shared_ptr<Fetch> fetch = worker.Read(std::move(runs));
  int next = 0;
  while (!fetch->is_over()) {
    fetch->Await(absl::InfiniteDuration());
    for (const Fetch::Arrival& arrival : fetch->Take()) {
      EXPECT_EQ(arrival.page, next);
      EXPECT_EQ(arrival.bytes, text.bytes(next));
      ++next;
    }
  }
  EXPECT_EQ(next, 9);
}

// Pages that wait to be taken use bounded memory.
TEST_F(StoreWorkerTest, ReadsOnlyAsFarAheadAsItsLimit) {
  const TestText text(TestPool("target"), 100, 50, kSmallPage);
  const auto store = Open();
  StoreWorker worker(store, {.max_fetched_bytes = 3 * kSmallPage});
  Queue(&worker, worker.AddPool({.id = TestPool("target")}), text);
  worker.AwaitWritten();
  std::vector<StoredRun> runs;
  runs.push_back(RunOf(text));
  const std::shared_ptr<Fetch> fetch = worker.Read(std::move(runs));
  size_t num_taken = 0;
  while (!fetch->is_over()) {
    fetch->Await(absl::InfiniteDuration());
    const auto arrivals = fetch->Take();
    EXPECT_LE(arrivals.size(), 3);
    num_taken += arrivals.size();
  }
  EXPECT_EQ(num_taken, 50);
  // A fetch that is never taken does not keep the worker from stopping.
  runs.clear();
  runs.push_back(RunOf(text));
  worker.Read(std::move(runs))->Cancel();
}

TEST_F(StoreWorkerTest, DropsTheOldestPagesWhenTooManyWait) {
  const auto store = std::make_shared<GatedStore>(Open());
  StoreWorker worker(store, {.max_queued_bytes = 10 * kSmallPage});
  const int pool = worker.AddPool({.id = TestPool("target")});
  const TestText first(TestPool("target"), 100, 1, kSmallPage);
  const TestText text(TestPool("target"), 1000, 25, kSmallPage);
  Queue(&worker, pool, first);
  store->is_writing.WaitForNotification();
  Queue(&worker, pool, text);
  EXPECT_EQ(worker.num_dropped(), 15);
  store->may_write.Notify();
  worker.AwaitWritten();
  EXPECT_EQ(store->Find(text.refs()), 0);
  EXPECT_EQ(store->Find(text.refs().subspan(15)), 10);
  EXPECT_EQ(worker.stats().pages_written, 11);
}

TEST_F(StoreWorkerTest, RecordsHowFastPagesAreComputed) {
  const auto store = Open();
  {
    StoreWorker worker(store, {});
    const int pool = worker.AddPool({.id = TestPool("target")});
    Queue(&worker, pool, TestText(TestPool("target"), 100, 2, kSmallPage));
    worker.AwaitWritten();
    worker.SetSpeed(pool, 123.0);
  }
  EXPECT_EQ((*store->Pools())[0].tokens_per_second, 123.0);
}

}  // namespace
}  // namespace tandem
