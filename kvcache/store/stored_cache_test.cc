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
  StoreWorker worker(*OpenLmdbStore({.folder = folder.path()}), {});
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

}  // namespace
}  // namespace tandem
