#ifndef TANDEM_KVCACHE_PAGED_KV_CACHE_H_
#define TANDEM_KVCACHE_PAGED_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "kvcache/kv_sequence.h"
#include "kvcache/page_pool.h"
#include "kvcache/prefix_index.h"
#include "tandem/types.h"

namespace tandem {

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

  KvSequence NewSequence(int variant = 0, CacheSalt salt = nullptr) {
    return KvSequence(this, variant, std::move(salt));
  }

  // Starts a sequence from the longest prefix of `tokens` that one of its variant and an equal salt
  // published; its
  // length() says how long: a multiple of the page size, and less than tokens.size(), so that at
  // least one token is left to feed. Counts the lookup and the hit.
  KvSequence NewSequenceWithPrefix(absl::Span<const TokenId> tokens, int variant = 0,
                                   CacheSalt salt = nullptr);

  // Offers a sequence's full pages to later prompts. Where the same text is published already the
  // sequence goes over to those pages and gives its own back: they hold the same bits.
  // REQUIRES: `tokens` are committed and begin with the sequence's contents, whose keys and values
  // are written: sequence->length() <= tokens.size(). A page of draft tokens must never be
  // published.
  void Publish(absl::Span<const TokenId> tokens, KvSequence* sequence);

  // The longest run of whole pages of `tokens` that is published, held. Counts nothing.
  KvSequence HoldPublished(absl::Span<const TokenId> tokens, int variant, CacheSalt salt);

  // Is told when pages are published or leave the prefix index. Must not change the cache, and
  // must not throw.
  class Observer {
   public:
    virtual ~Observer() = default;
    // `page` holds `tokens`, after those of `parent` (PrefixIndex::RootOf at the start of a text),
    // in a text of this salt.
    virtual void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                           const CacheSalt& salt) = 0;
    // `page`, which was published, makes room for others.
    virtual void OnEvict(PageId /*page*/) {}
    // No page is published any more.
    virtual void OnClear() {}
    // `from` was copied to `to`, which a sequence is about to write to.
    virtual void OnCopy(PageId /*from*/, PageId /*to*/) {}
  };
  // Observers are told in the order in which they were added, and must be removed before they end.
  void AddObserver(Observer* observer) { observers_.push_back(observer); }
  void RemoveObserver(Observer* observer);

  // Copies a page out of the cache, or into it: its pieces in order, then its state;
  // layout().page_bytes().
  void ReadPage(PageId page, absl::Span<std::byte> into) const;
  void WritePage(PageId page, absl::Span<const std::byte> from);

  // What copy-on-write does; a rank of a group follows rank 0's (model/transformer.h).
  void CopyPage(PageId from, PageId to);

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

  // The page's state, f32 [layout().state_size] in the backend's memory. Null where pages have
  // none, or the cache has no storage.
  float* StateOf(PageId page) const;

  // What attention reads and writes for one layer. The caller adds page tables, lengths and batch.
  PagedKvView LayerView(int layer) const;

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
  // One of KvLayout's pieces: a layer's keys, or values, of one head.
  uint32_t* PieceOf(PageId page, int piece) const;
  size_t state_bytes() const { return layout_.state_size * sizeof(float); }

  Backend* backend_;
  KvLayout layout_;
  Buffer storage_;  // whole groups of pages, see KvLayout, then the states of their pages
  PagePool pool_;
  PrefixIndex prefixes_;
  std::vector<Observer*> observers_;
  PrefixStats prefix_stats_;
  int64_t num_page_copies_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PAGED_KV_CACHE_H_
