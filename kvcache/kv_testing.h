// For tests: a backend that only has memory, and a peer class that can corrupt a cache.
#ifndef TANDEM_KVCACHE_KV_TESTING_H_
#define TANDEM_KVCACHE_KV_TESTING_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/float16.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {

// Copies one page out of a cache, or into it.
inline void ReadPage(const PagedKvCache& cache, PageId page, absl::Span<std::byte> into) {
  const auto take = [into](int, Backend::CopyPage copy) {
    copy(into);
    return true;
  };
  TANDEM_CHECK(cache.ReadPages({&page, 1}, take).ok());
}
inline void WritePage(PagedKvCache* cache, PageId page, absl::Span<const std::byte> from) {
  TANDEM_CHECK(cache->WritePages({&page, 1}, {&from, 1}).ok());
}

// Counts the pages that a cache copies and evicts.
struct PageCounts final : PagedKvCache::Observer {
  void OnPublish(PageId, PageId, absl::Span<const TokenId>, const CacheSalt&) override {}
  void OnEvict(PageId) override { ++evicted; }
  void OnCopy(PageId, PageId) override { ++copied; }

  int copied = 0;
  int evicted = 0;
};

// Allocates with malloc, so that sanitizers see accesses out of bounds. Computes nothing.
class MemoryBackend : public Backend {
 public:
  // Allocations of more bytes than this fail.
  explicit MemoryBackend(size_t max_bytes = size_t{1} << 30) : max_bytes_(max_bytes) {}

  int num_copies() const { return num_copies_; }

  std::string_view name() const override { return "memory"; }
  std::string_view description() const override { return "memory only"; }
  bool memory_is_host() const override { return true; }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    if (bytes > max_bytes_) return absl::ResourceExhaustedError("memory: more than max_bytes");
    return Buffer(this, std::malloc(bytes), bytes);
  }
  void Upload(absl::Span<const std::byte> host, void* device) override {
    std::memcpy(device, host.data(), host.size());
  }
  void Download(const void* device, absl::Span<std::byte> host) override {
    std::memcpy(host.data(), device, host.size());
  }
  void Copy(const void* from, void* to, size_t bytes) override {
    ++num_copies_;
    std::memcpy(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart>, PartOrder,
                                    std::optional<DType>) override {
    return absl::UnimplementedError("memory only");
  }
  absl::StatusOr<ConstMatrixView> Import(ConstMatrixView, Buffer*) override {
    return absl::UnimplementedError("memory only");
  }
  void Embed(const int32_t*, ConstMatrixView, MatrixView, const NextProduct&) override {
    std::abort();
  }
  void GatherRows(ConstMatrixView, const int32_t*, MatrixView) override { std::abort(); }
  void ArgMax(ConstMatrixView, int32_t*) override { std::abort(); }
  void RmsNorm(ConstMatrixView, const float*, float, MatrixView) override { std::abort(); }
  void SubtractMean(ConstMatrixView, MatrixView) override { std::abort(); }
  void ScaleAndCap(float, float, MatrixView) override { std::abort(); }
  void AddScaled(ConstMatrixView, float, MatrixView) override { std::abort(); }
  void Product(ConstMatrixView, const PackedWeight&, Epilogue, MatrixView,
               const NextProduct&) override {
    std::abort();
  }
  void RotaryAngles(const RaggedRows&, const int32_t*, const RotaryTables&, MatrixView) override {
    std::abort();
  }
  void RotateAndCache(MatrixView, ConstMatrixView, const HeadNorms&, const RaggedRows&,
                      const PagedKvView&) override {
    std::abort();
  }
  void Attend(ConstMatrixView, const RaggedRows&, const PagedKvView&, const AttentionForm&,
              MatrixView, const NextProduct&) override {
    std::abort();
  }

 protected:
  void Free(void* data, size_t) override { std::free(data); }

 private:
  size_t max_bytes_;
  int num_copies_ = 0;
};

// Gives tests access to the private state of a cache.
class PagedKvCacheTestPeer {
 public:
  explicit PagedKvCacheTestPeer(PagedKvCache* cache) : cache_(cache) {}

  int num_refs(PageId page) const { return cache_->pool_.num_refs(page); }
  int num_published() const { return cache_->prefixes_.num_published(); }
  // Replaces the hash of the prefix index.  REQUIRES: no page is published.
  void UseHash(PrefixIndex::Hash hash) {
    TANDEM_CHECK(num_published() == 0);
    cache_->prefixes_ = PrefixIndex(cache_->num_pages(), cache_->layout().page_size, hash);
  }

  void FillFreePages(float value) {
    const KvLayout& layout = cache_->layout();
    uint32_t word = std::bit_cast<uint32_t>(value);
    if (layout.dtype != KvDType::kF32) word = FloatToBf16(value) * 0x10001u;
    const std::vector<uint32_t> words(layout.piece_words(), word);
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(words.data()),
                                           words.size() * sizeof(uint32_t));
    for (const PageId page : cache_->pool_.free_pages()) {
      for (int piece = 0; piece < layout.num_pieces(); ++piece) {
        cache_->backend_->Upload(bytes, cache_->PieceOf(page, piece));
      }
      if (layout.state_size > 0) {
        const std::vector<float> state(layout.state_size, value);
        cache_->backend_->Upload(
            absl::MakeConstSpan(reinterpret_cast<const std::byte*>(state.data()),
                                state.size() * sizeof(float)),
            cache_->StateOf(page));
      }
    }
  }

  // ---- Corruptions that CheckIntegrity must detect ----
  void AddRef(PageId page) { ++cache_->pool_.refs_[page]; }
  void DropRef(PageId page) { --cache_->pool_.refs_[page]; }
  void FreeTwice() { cache_->pool_.free_.push_back(cache_->pool_.free_.back()); }
  void FreeInUse(PageId page) { cache_->pool_.free_.push_back(page); }
  void LosePage() { cache_->pool_.free_.pop_back(); }
  void SetPage(KvSequence* sequence, int index, PageId page) { sequence->pages_[index] = page; }
  void SetLength(KvSequence* sequence, int length) { sequence->length_ = length; }
  void AddBlocker(PageId page) { ++cache_->prefixes_.nodes_[page].blockers; }
  void SetParent(PageId page, PageId parent) { cache_->prefixes_.nodes_[page].parent = parent; }
  void SetDepth(PageId page, int depth) { cache_->prefixes_.nodes_[page].depth = depth; }
  void SetToken(PageId page, TokenId token) { cache_->prefixes_.nodes_[page].tokens[0] = token; }
  void SwapMostRecent() {  // swaps the two most recently used pages; their links stay consistent
    PrefixIndex& index = cache_->prefixes_;
    const PageId first = index.most_recent_;
    const PageId second = index.nodes_[first].less_recent;
    index.RemoveFromList(second);
    index.PushMostRecent(second);
  }
  void CutList() { cache_->prefixes_.RemoveFromList(cache_->prefixes_.least_recent_); }
  void MiscountPublished() { ++cache_->prefixes_.num_published_; }
  void MiscountEvictable() { ++cache_->prefixes_.num_evictable_; }

 private:
  PagedKvCache* cache_;
};

// Fills every free page with `value`, to show that results do not depend on positions past a
// sequence's length. Elements of bf16 pages get `value` rounded to bf16. Words of int8 pages
// consist of two such elements, so that their scales are close to `value`. States are f32.
inline void FillFreePages(PagedKvCache* cache, float value) {
  PagedKvCacheTestPeer(cache).FillFreePages(value);
}

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_TESTING_H_
