#include "kvcache/paged_kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcache/kv_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

using Tokens = std::vector<TokenId>;

constexpr KvLayout kSmall{
    .num_layers = 2, .num_kv_heads = 2, .head_dim = 3, .page_size = 4, .dtype = KvDType::kF32};

std::unique_ptr<PagedKvCache> MakeCache(int num_pages, Backend* backend = nullptr,
                                        const KvLayout& layout = kSmall) {
  auto cache = PagedKvCache::Create(backend, layout, num_pages);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

Tokens Counting(int count, TokenId first = 0) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Publishes `tokens` from a sequence that is then dropped.
void PublishAndDrop(PagedKvCache* cache, const Tokens& tokens) {
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(static_cast<int>(tokens.size())).ok());
  cache->Publish(tokens, &sequence);
}

// Returns how many of `tokens` a prompt that begins with them finds.
int HitLength(PagedKvCache* cache, Tokens tokens) {
  tokens.push_back(-1);
  return cache->NewSequenceWithPrefix(tokens).length();
}

TEST(PagedKvCache, RefusesImpossibleLayouts) {
  KvLayout layout = kSmall;
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (int KvLayout::*size : {&KvLayout::num_layers, &KvLayout::num_kv_heads, &KvLayout::head_dim,
                              &KvLayout::page_size}) {
    layout = kSmall;
    layout.*size = 0;
    EXPECT_EQ(PagedKvCache::Create(nullptr, layout, 1).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  layout = kSmall;
  layout.state_size = -1;
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  // States of 2^63 bytes.
  layout.state_size = INT_MAX;
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, INT_MAX).status().code(),
            absl::StatusCode::kInvalidArgument);
  layout = {.num_layers = INT_MAX, .num_kv_heads = INT_MAX, .head_dim = INT_MAX, .page_size = 2};
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Two pages of 2^62 bytes fit into size_t, but into no address space.
  layout = {.num_layers = 1 << 30, .num_kv_heads = 1 << 29, .head_dim = 1, .page_size = 1};
  EXPECT_EQ(PagedKvCache::Create(nullptr, layout, 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  MemoryBackend little(1000);
  EXPECT_EQ(PagedKvCache::Create(&little, kSmall, 1000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PagedKvCache, HoldsExactlyThePagesThatLengthsNeed) {
  MemoryBackend backend;
  const auto cache = MakeCache(5, &backend);
  KvSequence sequence = cache->NewSequence();
  for (int length = 0; length <= 20; ++length) {
    EXPECT_EQ(sequence.length(), length);
    EXPECT_EQ(cache->num_free_pages(), 5 - (length + 3) / 4);
    EXPECT_EQ(sequence.Extend(1).ok(), length < 20);
  }
  for (int length = 20; length >= 0; --length) {
    sequence.Truncate(length);
    EXPECT_EQ(cache->num_free_pages(), 5 - (length + 3) / 4);
  }
  EXPECT_EQ(backend.num_copies(), 0);
}

TEST(PagedKvCache, FailedExtendChangesNothing) {
  const auto cache = MakeCache(3);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(6).ok());
  const std::vector<PageId> pages(sequence.pages().begin(), sequence.pages().end());
  for (const int count : {7, 100, INT_MAX}) {
    const absl::Status status = sequence.Extend(count);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("1 of 3 available"), std::string::npos) << status;
    EXPECT_EQ(sequence.length(), 6);
    EXPECT_EQ(sequence.pages(), absl::MakeConstSpan(pages));
  }
  EXPECT_TRUE(sequence.Extend(0).ok());
  EXPECT_TRUE(sequence.Extend(6).ok());
}

TEST(PagedKvCache, OnlyExtendIntoASharedTailCopiesAPage) {
  MemoryBackend backend;
  const auto cache = MakeCache(8, &backend);
  KvSequence first = cache->NewSequence();
  ASSERT_TRUE(first.Extend(6).ok());
  KvSequence second = first.Fork();
  EXPECT_EQ(cache->num_free_pages(), 6);
  ASSERT_TRUE(first.Extend(0).ok());
  EXPECT_EQ(backend.num_copies(), 0);
  ASSERT_TRUE(second.Extend(1).ok());
  EXPECT_EQ(backend.num_copies(), 8);  // pieces: 2 layers, keys and values, 2 heads
  EXPECT_EQ(first.pages()[0], second.pages()[0]);
  EXPECT_NE(first.pages()[1], second.pages()[1]);
  ASSERT_TRUE(first.Extend(2).ok());  // its last page is not shared any more
  ASSERT_TRUE(second.Extend(2).ok());
  KvSequence third = first.Fork();
  ASSERT_TRUE(third.Extend(5).ok());  // shares full pages only: no copy
  first.Truncate(3);
  third.Truncate(0);
  EXPECT_EQ(backend.num_copies(), 8);
}

TEST(PagedKvCache, RollingBackDraftsCopiesNoPage) {
  MemoryBackend backend;
  const auto cache = MakeCache(16, &backend);
  KvSequence sequence = cache->NewSequence();
  Tokens tokens;
  for (int round = 0; round < 12; ++round) {
    ASSERT_TRUE(sequence.Extend(5).ok());
    sequence.Truncate(sequence.length() - 5 + 1 + round % 5);
    tokens.resize(sequence.length());
    cache->Publish(tokens, &sequence);  // committed tokens only
  }
  EXPECT_EQ(backend.num_copies(), 0);
}

TEST(PagedKvCache, MovingASequenceMovesItsPages) {
  const auto cache = MakeCache(4);
  KvSequence first = cache->NewSequence();
  ASSERT_TRUE(first.Extend(5).ok());
  KvSequence second = std::move(first);
  EXPECT_EQ(second.length(), 5);
  EXPECT_EQ(cache->num_free_pages(), 2);
  second = KvSequence();
  EXPECT_EQ(cache->num_free_pages(), 4);
  const KvSequence empty;
  EXPECT_EQ(empty.Fork().length(), 0);
}

CacheSalt Salt(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

// Row 178 of the bug catalogue.
TEST(PagedKvCache, SaltsShareNoPrefix) {
  const auto cache = MakeCache(32);
  const Tokens text = Counting(12);
  PublishAndDrop(cache.get(), text);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 0, Salt("a")).length(), 0);
  KvSequence a = cache->NewSequence(0, Salt("a"));
  KvSequence b = cache->NewSequence(0, Salt("b"));
  ASSERT_TRUE(a.Extend(8).ok());
  ASSERT_TRUE(b.Extend(8).ok());
  cache->Publish(text, &a);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 0, Salt("b")).length(), 0);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 1, Salt("a")).length(), 0);
  cache->Publish(text, &b);
  const KvSequence of_a = cache->NewSequenceWithPrefix(text, 0, Salt("a"));
  const KvSequence of_b = cache->NewSequenceWithPrefix(text, 0, Salt("b"));
  const KvSequence of_none = cache->NewSequenceWithPrefix(text);
  for (const KvSequence* sequence : {&of_a, &of_b, &of_none}) EXPECT_EQ(sequence->length(), 8);
  EXPECT_EQ(of_a.pages()[1], a.pages()[1]);
  EXPECT_EQ(of_b.pages()[1], b.pages()[1]);
  for (const PageId page : of_a.pages()) {
    EXPECT_THAT(of_b.pages(), testing::Not(testing::Contains(page)));
    EXPECT_THAT(of_none.pages(), testing::Not(testing::Contains(page)));
  }
  EXPECT_TRUE(IsSameSalt(of_a.Fork().salt(), a.salt()));
  const KvSequence* const all[] = {&a, &b, &of_a, &of_b, &of_none};
  EXPECT_TRUE(cache->CheckIntegrity(all).ok());
}

// Salts are compared, not only hashed.
TEST(PagedKvCache, SaltsWithEqualHashesShareNoPrefix) {
  const auto cache = MakeCache(32);
  PagedKvCacheTestPeer(cache.get()).UseHash([](uint64_t, absl::Span<const TokenId>) {
    return uint64_t{7};
  });
  const Tokens text = Counting(12);
  KvSequence a = cache->NewSequence(0, Salt("a"));
  ASSERT_TRUE(a.Extend(8).ok());
  cache->Publish(text, &a);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 0, Salt("b")).length(), 0);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text).length(), 0);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 0, Salt("a")).length(), 8);
}

// The same text has other keys and values in each variant.
TEST(PagedKvCache, VariantsShareNoPrefix) {
  const auto cache = MakeCache(16);
  const Tokens text = Counting(12);
  PublishAndDrop(cache.get(), text);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 1).length(), 0);
  KvSequence other = cache->NewSequence(1);
  EXPECT_EQ(other.variant(), 1);
  EXPECT_EQ(other.Fork().variant(), 1);
  ASSERT_TRUE(other.Extend(8).ok());
  cache->Publish(text, &other);
  const KvSequence found = cache->NewSequenceWithPrefix(text, 1);
  EXPECT_EQ(found.length(), 8);
  EXPECT_EQ(found.pages()[1], other.pages()[1]);
  const KvSequence first = cache->NewSequenceWithPrefix(text);
  EXPECT_EQ(first.length(), 8);
  EXPECT_NE(first.pages()[0], found.pages()[0]);
  EXPECT_EQ(cache->NewSequenceWithPrefix(text, 2).length(), 0);
  const KvSequence* const all[] = {&other, &found, &first};
  EXPECT_TRUE(cache->CheckIntegrity(all).ok());
}

TEST(PagedKvCache, PublishesOnlyPagesThatAreFullyCached) {
  for (int cached = 0; cached <= 12; ++cached) {
    const auto cache = MakeCache(8);
    KvSequence sequence = cache->NewSequence();
    ASSERT_TRUE(sequence.Extend(cached).ok());
    cache->Publish(Counting(12), &sequence);
    EXPECT_EQ(HitLength(cache.get(), Counting(12)), cached / 4 * 4);
  }
}

TEST(PagedKvCache, SameTextFromTwoSequencesIsPublishedOnce) {
  const auto cache = MakeCache(8);
  const Tokens text = Counting(12);
  KvSequence first = cache->NewSequence();
  KvSequence second = cache->NewSequence();
  ASSERT_TRUE(first.Extend(8).ok());
  ASSERT_TRUE(second.Extend(12).ok());
  cache->Publish(text, &first);
  cache->Publish(text, &second);  // its third page follows the two pages of `first`
  EXPECT_EQ(PagedKvCacheTestPeer(cache.get()).num_published(), 3);
  EXPECT_EQ(cache->num_free_pages(), 5);
  const KvSequence hit = cache->NewSequenceWithPrefix(Counting(13));
  EXPECT_EQ(hit.length(), 12);
  EXPECT_EQ(hit.pages(), second.pages());
  EXPECT_EQ(hit.pages().first(2), first.pages());
  EXPECT_TRUE(cache->CheckIntegrity({&first, &second, &hit}).ok());
}

// Records the notifications of an observer as text.
class Told final : public PagedKvCache::Observer {
 public:
  void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                 const CacheSalt& salt) override {
    words.push_back(absl::StrCat("publish ", page, " after ", parent, ": ", tokens.front(),
                                 salt == nullptr ? "" : *salt));
  }
  void OnEvict(PageId page) override { words.push_back(absl::StrCat("evict ", page)); }

  std::vector<std::string> words;
};

TEST(PagedKvCache, NotifiesEveryObserverOfPublishedAndRemovedPages) {
  auto cache = MakeCache(3);
  Told told;
  Told also_told;
  cache->AddObserver(&told);
  cache->AddObserver(&also_told);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(8).ok());
  const std::vector<PageId> pages = {sequence.pages().begin(), sequence.pages().end()};
  cache->Publish(Counting(8), &sequence);
  cache->Publish(Counting(8), &sequence);  // already published
  sequence = KvSequence();
  EXPECT_THAT(told.words,
              ElementsAre(absl::StrCat("publish ", pages[0], " after -1: 0"),
                          absl::StrCat("publish ", pages[1], " after ", pages[0], ": 4")));
  EXPECT_EQ(also_told.words, told.words);

  cache->RemoveObserver(&also_told);
  told.words.clear();
  sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(8).ok());
  EXPECT_THAT(told.words, ElementsAre(absl::StrCat("evict ", pages[1])));
  EXPECT_EQ(also_told.words.size(), 2);
  cache->RemoveObserver(&told);
}

// A published page is never written.
TEST(PagedKvCache, ExtendInsideAPublishedPageCopiesIt) {
  MemoryBackend backend;
  const auto cache = MakeCache(4, &backend);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(8).ok());
  cache->Publish(Counting(8), &sequence);
  const PageId published = sequence.pages()[1];
  sequence.Truncate(6);
  EXPECT_EQ(backend.num_copies(), 0);
  ASSERT_TRUE(sequence.Extend(1).ok());
  EXPECT_EQ(backend.num_copies(), 8);
  EXPECT_NE(sequence.pages()[1], published);
  EXPECT_EQ(HitLength(cache.get(), Counting(8)), 8);
}

TEST(PagedKvCache, PagesOfAHeadAreAdjacentInAGroup) {
  MemoryBackend backend;
  const auto cache = MakeCache(3, &backend);
  const float* const start = static_cast<float*>(cache->LayerView(0).keys);
  for (int layer = 0; layer < kSmall.num_layers; ++layer) {
    const PagedKvView view = cache->LayerView(layer);
    EXPECT_EQ(static_cast<float*>(view.keys) - start, 768 * layer);
    EXPECT_EQ(static_cast<float*>(view.values) - start, 768 * layer + 384);
    EXPECT_EQ(view.page_stride, 12);   // 4 tokens of 3 elements
    EXPECT_EQ(view.head_stride, 192);  // 16 pages
    EXPECT_EQ(view.group_stride, 1536);
    EXPECT_EQ(view.BlockOf(17, 1), 1536 + 12 + 192);
    EXPECT_EQ(view.page_size, 4);
    EXPECT_EQ(view.num_kv_heads, 2);
    EXPECT_EQ(view.head_dim, 3);
    EXPECT_EQ(view.dtype, KvDType::kF32);
  }
  EXPECT_EQ(kSmall.page_bytes(), 384u);
}

TEST(PagedKvCache, FillFreePagesLeavesPagesInUseAlone) {
  MemoryBackend backend;
  const auto cache = MakeCache(3, &backend);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(4).ok());
  float* const start = static_cast<float*>(cache->LayerView(0).keys);
  std::fill_n(start, 1536, 1.0f);
  FillFreePages(cache.get(), std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 1536; ++i) {
    const int page = i / 12 % 16;  // a group has room for 16; the cache has three
    EXPECT_EQ(std::isnan(start[i]), page < 3 && page != sequence.pages()[0]) << i;
  }
}

// ---- CheckIntegrity detects corruption ----

class DamagedCache : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = MakeCache(12);
    peer_ = std::make_unique<PagedKvCacheTestPeer>(cache_.get());
    used_ = cache_->NewSequence();
    ASSERT_TRUE(used_.Extend(10).ok());
    cache_->Publish(Counting(10), &used_);
    PublishAndDrop(cache_.get(), Counting(12, 50));
    idle_ = cache_->NewSequenceWithPrefix(Counting(13, 50));  // to learn the page numbers
    idle_pages_.assign(idle_.pages().begin(), idle_.pages().end());
    idle_.Truncate(0);
    ASSERT_TRUE(Check().ok());
  }
  // Keeps the cache and its sequences alive: a corrupted cache cannot take pages back.
  void TearDown() override {
    static auto& kept = *new std::vector<std::pair<std::unique_ptr<PagedKvCache>, KvSequence>>;
    kept.emplace_back(nullptr, std::move(idle_));
    kept.emplace_back(std::move(cache_), std::move(used_));
  }
  absl::Status Check() { return cache_->CheckIntegrity({&used_, &idle_}); }
  void ExpectBroken(const std::string& what) {
    const absl::Status status = Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find(what), std::string::npos) << status;
  }

  std::unique_ptr<PagedKvCache> cache_;
  std::unique_ptr<PagedKvCacheTestPeer> peer_;
  KvSequence used_, idle_;
  std::vector<PageId> idle_pages_;
};

TEST_F(DamagedCache, SeesAnExtraReference) {
  peer_->AddRef(used_.pages()[2]);
  ExpectBroken("counted 2 times, held 1 times by sequences and 0");
}
TEST_F(DamagedCache, SeesAMissingReference) {
  peer_->DropRef(used_.pages()[0]);
  ExpectBroken("counted 1 times, held 1 times by sequences and 1");
}
TEST_F(DamagedCache, SeesAnUnlistedSequence) {
  const absl::Status status = cache_->CheckIntegrity({&idle_});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}
TEST_F(DamagedCache, SeesAPageFreeTwice) {
  peer_->FreeTwice();
  ExpectBroken("free twice");
}
TEST_F(DamagedCache, SeesAPageFreeAndInUse) {
  peer_->FreeInUse(used_.pages()[1]);
  ExpectBroken("free and in use");
}
TEST_F(DamagedCache, SeesALostPage) {
  peer_->LosePage();
  ExpectBroken("lost");
}
TEST_F(DamagedCache, SeesAWrongPageTable) {
  peer_->SetPage(&used_, 2, idle_pages_[0]);
  ExpectBroken("page");
}
TEST_F(DamagedCache, SeesANonexistentPage) {
  peer_->SetPage(&used_, 2, 12);
  ExpectBroken("page 12: no such page");
}
TEST_F(DamagedCache, SeesALengthWithoutPages) {
  peer_->SetLength(&used_, 13);
  ExpectBroken("a sequence of 13 tokens has 3 pages");
}
TEST_F(DamagedCache, SeesAWrongBlocker) {
  peer_->AddBlocker(used_.pages()[0]);
  ExpectBroken("blocked 3 times, not 2");
}
TEST_F(DamagedCache, SeesAWrongParent) {
  peer_->SetParent(idle_pages_[1], PrefixIndex::kNoPage);
  ExpectBroken("not at depth 0");
}
TEST_F(DamagedCache, SeesAWrongDepth) {
  peer_->SetDepth(idle_pages_[2], 1);
  ExpectBroken("the page before it is not published");
}
TEST_F(DamagedCache, SeesWrongTokens) {
  peer_->SetToken(idle_pages_[0], 7);
  ExpectBroken("not found by its tokens");
}
TEST_F(DamagedCache, SeesAWrongOrderOfUse) {
  peer_->SwapMostRecent();
  ExpectBroken("used after the page before it");
}
TEST_F(DamagedCache, SeesAPageMissingInTheOrderOfUse) {
  peer_->CutList();
  ExpectBroken("in the order of use");
}
TEST_F(DamagedCache, SeesAWrongCountOfPublishedPages) {
  peer_->MiscountPublished();
  ExpectBroken("5 pages are published, not 6");
}
TEST_F(DamagedCache, SeesAWrongCountOfEvictablePages) {
  peer_->MiscountEvictable();
  ExpectBroken("3 pages can be evicted");
}

TEST(PagedKvCacheDeathTest, ProgrammerErrorsAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto cache = MakeCache(4);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(8).ok());
  EXPECT_DEATH(sequence.Truncate(9), "check failed");
  EXPECT_DEATH(sequence.Truncate(-1), "check failed");
  EXPECT_DEATH((void)sequence.Extend(-1), "check failed");
  EXPECT_DEATH(cache->Publish(Counting(7), &sequence), "check failed");
  cache->Publish(Counting(8), &sequence);
  EXPECT_DEATH(cache->Publish(Counting(8, 1), &sequence), "check failed");  // other contents
  EXPECT_DEATH((void)cache->LayerView(2), "check failed");
}

}  // namespace
}  // namespace tandem
