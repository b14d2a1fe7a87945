#ifndef TANDEM_KVCACHE_PAGED_KV_CACHE_H_
#define TANDEM_KVCACHE_PAGED_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "kvcache/page_pool.h"
#include "kvcache/prefix_index.h"

namespace tandem {

class PagedKvCache;

// One sequence's keys and values for one model: a page table and a length. Move-only; destroying it
// gives its pages back.
//
// The length is the engine's only cursor. Tokens past it are simply not cached yet, and the next
// forward pass feeds them -- prefill, decode, verification and catching up after a rollback are all
// that one step.
class KvSequence {
 public:
  KvSequence() = default;
  KvSequence(KvSequence&& other) noexcept { swap(other); }
  KvSequence& operator=(KvSequence&& other) noexcept {
    swap(other);
    return *this;
  }
  ~KvSequence();

  int length() const { return length_; }
  // What the cache holds of a text may depend on this beside the text:
  // LanguageModel::cache_variant.
  int variant() const { return variant_; }
  PagedKvCache* cache() const { return cache_; }
  absl::Span<const PageId> pages() const { return pages_; }

  // The pages that Extend(count) would take from the pool, a copy of a shared tail included.
  // REQUIRES: count >= 0.
  int64_t PagesToExtend(int count) const;

  // Makes room for `count` more tokens; the forward pass that follows writes them. A page shared
  // with a fork or the prefix index is copied first, if this would write into it. Pages that only
  // the prefix index holds are evicted when the pool runs dry.
  // RESOURCE_EXHAUSTED, and nothing changes, if there are still too few.
  // REQUIRES: count >= 0.
  absl::Status Extend(int count);

  // Forgets every token from position `length` on. Cannot fail; copies nothing.
  // REQUIRES: 0 <= length <= this->length().
  void Truncate(int length);

  // A second sequence with the same contents, sharing every page until one of the two writes.
  KvSequence Fork() const;

 private:
  friend class PagedKvCache;
  friend class PagedKvCacheTestPeer;
  KvSequence(PagedKvCache* cache, int variant) : cache_(cache), variant_(variant) {}
  bool CopiesTail(int count) const;
  void swap(KvSequence& other) {
    std::swap(cache_, other.cache_);
    std::swap(pages_, other.pages_);
    std::swap(length_, other.length_);
    std::swap(variant_, other.variant_);
  }

  PagedKvCache* cache_ = nullptr;
  std::vector<PageId> pages_;  // pages_[i] holds positions [i * page_size, (i + 1) * page_size)
  int length_ = 0;
  int variant_ = 0;
};

// A model's key-value memory, divided into pages that sequences share and give back, with an index
// of published prefixes. Must outlive its sequences. What fails for want of memory (std::bad_alloc)
// loses no page. Thread-compatible.
class PagedKvCache {
 public:
  // `backend` may be null for tests that need page tables only; then there is no storage.
  // INVALID_ARGUMENT for a layout or page count that is not positive or too large to address;
  // RESOURCE_EXHAUSTED if memory is short. Memory is not touched before a page is written.
  static absl::StatusOr<std::unique_ptr<PagedKvCache>> Create(Backend* backend,
                                                              const KvLayout& layout,
                                                              int num_pages);

  const KvLayout& layout() const { return layout_; }
  int num_pages() const { return pool_.num_pages(); }
  int num_free_pages() const { return pool_.num_free(); }
  // Free, or to be had from the prefix index (no sequence uses them): exactly what Extend can still
  // hand out.
  int num_available_pages() const;

  KvSequence NewSequence(int variant = 0) { return KvSequence(this, variant); }

  // Starts a sequence from the longest prefix of `tokens` that one of its variant published; its
  // length() says how long: a multiple of the page size, and less than tokens.size(), so that at
  // least one token is left to feed. Counts the lookup and the hit.
  KvSequence NewSequenceWithPrefix(absl::Span<const TokenId> tokens, int variant = 0);

  // Offers a sequence's full pages to later prompts. Where the same text is published already the
  // sequence goes over to those pages and gives its own back: they hold the same bits.
  // REQUIRES: `tokens` are committed and begin with the sequence's contents, whose keys and values
  // are written: sequence->length() <= tokens.size(). A page of draft tokens must never be
  // published.
  void Publish(absl::Span<const TokenId> tokens, KvSequence* sequence);

  // Drops every published page that no sequence uses, and forgets the rest.
  void ClearPrefixes();

  struct PrefixStats {
    int64_t queried_tokens = 0;  // tokens of prompts looked up
    int64_t hit_tokens = 0;      // of those, found
    int64_t evicted_pages = 0;
  };
  const PrefixStats& prefix_stats() const { return prefix_stats_; }
  int64_t num_page_copies() const { return num_page_copies_; }  // by copy-on-write

  // Counts every page: each is either free or held exactly as often as the given sequences (all
  // that exist) and the prefix index say, no free page is in use, and the index is in order.
  // INTERNAL, naming the page, if not.
  absl::Status CheckIntegrity(absl::Span<const KvSequence* const> sequences) const;

  // What attention reads and writes for one layer. The caller adds page tables, lengths and batch.
  PagedKvView LayerView(int layer) const;

  // Fills every free page with `value`: nothing may depend on what is past a sequence's length.
  // bf16 pages are filled with its rounding, int8 pages with words that are two of it, so that
  // their scales are about it. For tests and benchmarks.
  void FillFreePages(float value);

 private:
  friend class KvSequence;
  friend class PagedKvCacheTestPeer;
  PagedKvCache(Backend* backend, const KvLayout& layout, int num_pages, Buffer storage);
  // Evicts published pages until `count` are free. False, with nothing evicted, if there are not so
  // many to be had.
  bool MakeFree(int count);
  // A sequence takes, or lets go of, a page that is held already.
  void Hold(PageId page);
  void Release(PageId page);
  void CopyPage(PageId from, PageId to);
  // One of KvLayout's pieces: a layer's keys, or values, of one head.
  uint32_t* PieceOf(PageId page, int piece) const;

  Backend* backend_;
  KvLayout layout_;
  Buffer storage_;  // whole groups of pages, see KvLayout
  PagePool pool_;
  PrefixIndex prefixes_;
  PrefixStats prefix_stats_;
  int64_t num_page_copies_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PAGED_KV_CACHE_H_
