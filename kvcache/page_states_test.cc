// The states stored with pages for a draft head.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {
namespace {

using ::testing::Each;

constexpr int kStateSize = 5;

std::unique_ptr<PagedKvCache> MakeCache(Backend* backend, int num_pages,
                                        KvDType dtype = KvDType::kF32,
                                        int state_size = kStateSize) {
  auto cache = PagedKvCache::Create(backend,
                                    {.num_layers = 2,
                                     .num_kv_heads = 2,
                                     .head_dim = 3,
                                     .page_size = 4,
                                     .dtype = dtype,
                                     .state_size = state_size},
                                    num_pages);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

// Writes page i's words as i + .5, and its state as i + .25.
void WritePages(PagedKvCache* cache) {
  const size_t page_bytes = cache->layout().page_bytes();
  std::vector<float> page(page_bytes / sizeof(float));
  for (PageId i = 0; i < cache->num_pages(); ++i) {
    std::fill(page.begin(), page.end(), static_cast<float>(i) + 0.5f);
    std::fill(page.end() - kStateSize, page.end(), static_cast<float>(i) + 0.25f);
    WritePage(cache, i, {reinterpret_cast<const std::byte*>(page.data()), page_bytes});
  }
}

std::vector<float> ReadPage(const PagedKvCache& cache, PageId page) {
  std::vector<float> words(cache.layout().page_bytes() / sizeof(float));
  ReadPage(cache, page, {reinterpret_cast<std::byte*>(words.data()), cache.layout().page_bytes()});
  return words;
}

// The pages are in two groups; the second group is not full.
TEST(PageStates, AreReadAndWrittenWithTheirPages) {
  for (const KvDType dtype : kAllKvDTypes) {
    MemoryBackend backend;
    const auto cache = MakeCache(&backend, 19, dtype);
    WritePages(cache.get());
    const size_t num_words = cache->layout().num_pieces() * cache->layout().piece_words();
    EXPECT_EQ(cache->layout().page_bytes(), (num_words + kStateSize) * sizeof(float));
    for (PageId i = 0; i < 19; ++i) {
      const auto whole = static_cast<float>(i);
      const std::vector<float> words = ReadPage(*cache, i);
      EXPECT_THAT(absl::MakeConstSpan(words).first(num_words), Each(whole + 0.5f));
      EXPECT_THAT(absl::MakeConstSpan(words).subspan(num_words), Each(whole + 0.25f));
      EXPECT_THAT(absl::MakeConstSpan(cache->StateOf(i), kStateSize), Each(whole + 0.25f));
      const PagedKvView view = cache->LayerView(1);
      EXPECT_EQ(static_cast<float*>(view.values)[view.BlockOf(i, 1)], whole + 0.5f);
    }
  }
}

TEST(PageStates, AreCopiedOnWrite) {
  MemoryBackend backend;
  const auto cache = MakeCache(&backend, 4);
  WritePages(cache.get());
  KvSequence first = cache->NewSequence();
  ASSERT_TRUE(first.Extend(6).ok());
  KvSequence second = first.Fork();
  ASSERT_TRUE(second.Extend(1).ok());
  const PageId from = first.pages()[1], to = second.pages()[1];
  ASSERT_NE(from, to);
  EXPECT_EQ(ReadPage(*cache, to), ReadPage(*cache, from));
  EXPECT_EQ(cache->StateOf(to)[4], static_cast<float>(from) + 0.25f);
}

TEST(PageStates, AreOverwrittenOnlyInFreePages) {
  MemoryBackend backend;
  const auto cache = MakeCache(&backend, 3);
  WritePages(cache.get());
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(4).ok());
  FillFreePages(cache.get(), std::numeric_limits<float>::quiet_NaN());
  for (PageId i = 0; i < 3; ++i) {
    EXPECT_EQ(std::isnan(cache->StateOf(i)[4]), i != sequence.pages()[0]) << i;
  }
}

TEST(PageStates, AreNullWithoutStateSizeOrStorage) {
  MemoryBackend backend;
  EXPECT_EQ(MakeCache(&backend, 3, KvDType::kF32, 0)->StateOf(1), nullptr);
  EXPECT_EQ(MakeCache(nullptr, 3)->StateOf(1), nullptr);
}

}  // namespace
}  // namespace tandem
