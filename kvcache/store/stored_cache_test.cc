#include "kvcache/store/stored_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kvcache/store/store_testing.h"
#include "kvcache/store/stored_cache_testing.h"

namespace tandem {
namespace {

TEST(StoredCache, KeepsTheStatesOfPages) {
  const TestFolder folder;
  CacheWithStates first, second;
  StoreWorker worker(*OpenSqliteStore({.folder = folder.path()}), {});
  {
    const StoredCache stored(first.cache.get(), {.id = TestPool("target")}, &worker);
    first.PublishText();
    worker.AwaitWritten();
  }
  StoredCache stored(second.cache.get(), {.id = TestPool("target")}, &worker);
  std::vector<StoredRun> runs;
  runs.push_back(stored.Missing(second.text, /*variant=*/0, /*salt=*/nullptr));
  const std::shared_ptr<Fetch> fetch = worker.Read(std::move(runs));
  EXPECT_FALSE(second.HasText());
  while (!fetch->is_over()) {
    fetch->Await(absl::InfiniteDuration());
    for (const Fetch::Arrival& arrival : fetch->Take()) {
      const absl::Span<const std::byte> bytes = arrival.bytes;
      EXPECT_EQ(stored.Insert(fetch->runs()[0], arrival.page, {&bytes, 1}), 1);
    }
  }
  EXPECT_TRUE(second.HasText());
}

// A device that has failed.
class FailedBackend final : public MemoryBackend {
 public:
  absl::Status ReadPages(const KvPages&, absl::Span<const int32_t>,
                         absl::FunctionRef<bool(int, CopyPage)>) override {
    return absl::DataLossError("lost");
  }
  absl::Status WritePages(absl::Span<const absl::Span<const std::byte>>, absl::Span<const int32_t>,
                          const KvPages&) override {
    return absl::DataLossError("lost");
  }
};

TEST(StoredCache, NeitherStoresNorPublishesPagesThatCannotBeCopied) {
  const TestFolder folder;
  FailedBackend backend;
  const auto cache = *PagedKvCache::Create(&backend, CacheWithStates::kLayout, 8);
  StoreWorker worker(*OpenSqliteStore({.folder = folder.path()}), {});
  StoredCache stored(cache.get(), {.id = TestPool("target")}, &worker);
  const CacheWithStates other;
  KvSequence sequence = cache->NewSequence();
  const auto first_page = absl::MakeConstSpan(other.text).first(4);
  ASSERT_TRUE(sequence.Extend(4).ok());
  cache->Publish(first_page, &sequence);
  worker.AwaitWritten();
  EXPECT_EQ(worker.stats().pages_written, 0);
  const StoredRun run = stored.Missing(other.text, /*variant=*/0, /*salt=*/nullptr);
  const std::vector<std::byte> bytes(run.page_bytes);
  const std::vector<absl::Span<const std::byte>> pages(4, bytes);
  EXPECT_EQ(run.first_page, 1);
  EXPECT_EQ(stored.Insert(run, 0, pages), 0);
  EXPECT_EQ(cache->HoldPublished(other.text, 0, nullptr).length(), 4);
  EXPECT_EQ(cache->num_free_pages(), 7);
}

}  // namespace
}  // namespace tandem
