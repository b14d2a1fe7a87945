// The number of calls of the runtime that pages and passes take.
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "kvcache/store/sqlite_store.h"
#include "kvcache/store/stored_cache.h"
#include "tests/folder_testing.h"
#include "tests/simt/runtime_calls.h"

namespace tandem {
namespace {

using simt::RuntimeCalls;
using testing::Pair;
using testing::UnorderedElementsAre;
using Counts = std::map<std::string, int64_t>;

constexpr int kPages = 40;

// Calls that `work` made.
template <typename Work>
Counts CallsOf(Work work) {
  Counts& counts = RuntimeCalls::Get().counts;
  counts.clear();
  work();
  return counts;
}

class PageCalls : public testing::TestWithParam<int> {  // layers
 protected:
  std::unique_ptr<Backend> backend_ = *MakeCudaBackend(0);
  std::unique_ptr<PagedKvCache> cache_ = *PagedKvCache::Create(
      backend_.get(), {.num_layers = GetParam(), .num_kv_heads = 2, .head_dim = 16, .page_size = 4},
      kPages);
};

TEST_P(PageCalls, AreConstantForABatch) {
  std::vector<PageId> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  const std::vector<std::byte> bytes(cache_->layout().page_bytes());
  const std::vector<absl::Span<const std::byte>> from(kPages, bytes);
  const auto write = [&] { EXPECT_TRUE(cache_->WritePages(pages, from).ok()); };
  std::vector<std::byte> into(bytes.size());
  const auto read = [&] {
    const auto take = [&](int, Backend::CopyPage copy) {
      copy(absl::MakeSpan(into));
      return true;
    };
    EXPECT_TRUE(cache_->ReadPages(pages, take).ok());
    EXPECT_EQ(into, bytes);
  };
  write();  // makes the pinned memory
  // The main stream waits for the pages, and the pages for the main stream, but never the host.
  EXPECT_THAT(CallsOf(write),
              UnorderedElementsAre(Pair("cudaEventRecord", 2), Pair("cudaStreamWaitEvent", 2),
                                   Pair("cudaEventSynchronize", 1), Pair("launch", 1)));
  // The host waits for the pages only.
  EXPECT_THAT(CallsOf(read),
              UnorderedElementsAre(Pair("cudaEventRecord", 2), Pair("cudaStreamWaitEvent", 1),
                                   Pair("cudaEventSynchronize", 1), Pair("launch", 1)));
  KvSequence first = cache_->NewSequence();
  ASSERT_TRUE(first.Extend(6).ok());
  KvSequence second = first.Fork();
  EXPECT_THAT(CallsOf([&] { EXPECT_TRUE(second.Extend(1).ok()); }),
              UnorderedElementsAre(Pair("launch", 1)));
}

// Without pinned memory, pages are copied piece by piece.
TEST_P(PageCalls, WorkWithoutPinnedMemory) {
  std::vector<std::byte> bytes(cache_->layout().page_bytes());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const PageId page = 3;
  const absl::Span<const std::byte> from = bytes;
  std::vector<std::byte> into(bytes.size());
  RuntimeCalls::Get().refuses_pinned = true;
  EXPECT_TRUE(cache_->WritePages({&page, 1}, {&from, 1}).ok());
  EXPECT_TRUE(cache_
                  ->ReadPages({&page, 1},
                              [&](int, Backend::CopyPage copy) {
                                copy(absl::MakeSpan(into));
                                return true;
                              })
                  .ok());
  RuntimeCalls::Get().refuses_pinned = false;
  EXPECT_EQ(into, bytes);
}

// Pages that a prompt publishes go to the store with the calls of one batch, and come back so.
TEST_P(PageCalls, AreConstantForAPromptOfAStore) {
  const TestFolder folder;
  StoreWorker worker(*OpenSqliteStore({.folder = folder.path()}), {});
  StoredCache stored(cache_.get(), {.id = PoolId()}, &worker);
  std::vector<TokenId> tokens(30 * 4);
  std::iota(tokens.begin(), tokens.end(), 0);
  KvSequence sequence = cache_->NewSequence();
  ASSERT_TRUE(sequence.Extend(static_cast<int>(tokens.size())).ok());
  const Counts first = CallsOf([&] { cache_->Publish(tokens, &sequence); });
  EXPECT_EQ(first.at("launch"), 1);
  EXPECT_EQ(first.count("cudaMemcpyAsync"), 0u);
  worker.AwaitWritten();
  EXPECT_EQ(worker.stats().pages_written, 30);
}

INSTANTIATE_TEST_SUITE_P(Layers, PageCalls, testing::Values(1, 3));

}  // namespace
}  // namespace tandem
