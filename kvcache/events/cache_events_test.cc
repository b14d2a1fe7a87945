#include "kvcache/events/cache_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr KvLayout kLayout{
    .num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .page_size = 2, .dtype = KvDType::kF32};

using Batches = std::vector<std::vector<KvEvent>>;

class ListPublisher final : public KvEventPublisher {
 public:
  explicit ListPublisher(Batches* batches) : batches_(batches) {}
  void Publish(KvEventBatch batch) override {
    EXPECT_GT(batch.time, 1e9);
    batches_->push_back(std::move(batch.events));
  }
  KvEventStats stats() const override { return {}; }

 private:
  Batches* batches_;
};

class CacheEventsTest : public ::testing::Test {
 protected:
  CacheEventsTest()
      : cache_(*PagedKvCache::Create(nullptr, kLayout, 4)),
        events_(cache_.get(), std::make_unique<ListPublisher>(&batches_)) {}

  KvSequence Published(const std::vector<TokenId>& tokens, int variant = 0,
                       CacheSalt salt = nullptr) {
    KvSequence sequence = cache_->NewSequence(variant, std::move(salt));
    EXPECT_TRUE(sequence.Extend(static_cast<int>(tokens.size())).ok());
    cache_->Publish(tokens, &sequence);
    return sequence;
  }

  static PageKey Root(int variant = 0, const std::string& salt = "") {
    return RootKey(PoolId(), variant, salt);
  }

  Batches batches_;
  std::unique_ptr<PagedKvCache> cache_;
  CacheEvents events_;
};

TEST_F(CacheEventsTest, ARoundIsOneBatchAndConsecutivePagesOneEvent) {
  KvSequence sequence = Published({1, 2, 3, 4, 5});
  const PageKey first = KeyAfter(Root(), {1, 2});
  const PageKey second = KeyAfter(first, {3, 4});
  events_.Flush();
  events_.Flush();  // nothing new
  ASSERT_THAT(batches_, SizeIs(1));
  EXPECT_THAT(batches_[0],
              ElementsAre(PagesStored{.pages = {first, second}, .tokens = {1, 2, 3, 4}}));

  ASSERT_TRUE(sequence.Extend(1).ok());
  cache_->Publish({1, 2, 3, 4, 5, 6}, &sequence);
  const KvSequence other = Published({7, 8});
  events_.Flush();
  ASSERT_THAT(batches_, SizeIs(2));
  EXPECT_THAT(
      batches_[1],
      ElementsAre(
          PagesStored{.pages = {KeyAfter(second, {5, 6})}, .parent = second, .tokens = {5, 6}},
          PagesStored{.pages = {KeyAfter(Root(), {7, 8})}, .tokens = {7, 8}}));
}

TEST_F(CacheEventsTest, ReportsEvictedPages) {
  Published({1, 2, 3, 4, 5, 6, 7, 8});
  events_.Flush();
  KvSequence wide = cache_->NewSequence();
  ASSERT_TRUE(wide.Extend(4).ok());
  events_.Flush();
  const auto stored = std::get<PagesStored>(batches_[0][0]);
  ASSERT_THAT(batches_, SizeIs(2));
  EXPECT_THAT(batches_[1], ElementsAre(PagesRemoved{.pages = {stored.pages[3], stored.pages[2]}}));
}

TEST_F(CacheEventsTest, SaltsAndVariantsHaveTheirOwnNames) {
  Published({1, 2}, 0, std::make_shared<std::string>("secret"));
  Published({1, 2}, 1);
  events_.Flush();
  ASSERT_THAT(batches_, SizeIs(1));
  ASSERT_THAT(batches_[0], SizeIs(2));
  const auto salted = std::get<PagesStored>(batches_[0][0]);
  EXPECT_THAT(salted.pages, ElementsAre(KeyAfter(Root(0, "secret"), {1, 2})));
  EXPECT_THAT(salted.tenant, SizeIs(64));
  EXPECT_THAT(salted.tenant, testing::Not(testing::HasSubstr("secret")));
  const auto variant = std::get<PagesStored>(batches_[0][1]);
  EXPECT_THAT(variant.pages, ElementsAre(KeyAfter(Root(1), {1, 2})));
  EXPECT_EQ(variant.tenant, "");
}

// Pages that were published before the observer existed have no key, so neither do the pages after
// them.
TEST(CacheEvents, IgnoresTextsWhoseBeginningIsUnknown) {
  auto cache = *PagedKvCache::Create(nullptr, kLayout, 4);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(4).ok());
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  KvSequence first = cache->NewSequence();
  ASSERT_TRUE(first.Extend(2).ok());
  cache->Publish({1, 2}, &first);
  Batches batches;
  CacheEvents events(cache.get(), std::make_unique<ListPublisher>(&batches));
  cache->Publish(tokens, &sequence);
  events.Flush();
  EXPECT_THAT(batches, SizeIs(0));
}

}  // namespace
}  // namespace tandem
