#ifndef TANDEM_KVCACHE_PAGED_KV_CACHE_H_
#define TANDEM_KVCACHE_PAGED_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
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
// of published prefixes. Must outlive its sequences. An operation that throws std::bad_alloc leaks
// no page. Thread-compatible.
class PagedKvCache {
 public:
  // `backend` may be null in tests that need only page tables; the cache then has no storage.
  // Returns INVALID_ARGUMENT for a layout or page count that is not positive or too large to
  // address, and RESOURCE_EXHAUSTED if memory is short. Memory is not touched before a page is
  // written.
  static absl::StatusOr<std::unique_ptr<PagedKvCache>> Create(Backend* backend,
                                                              const KvLayout& layout,
                                                              int num_pages);

  const KvLayout& layout() const { return layout_; }
  int num_pages() const { return pool_.num_pages(); }
  int num_free_pages() const { return pool_.num_free(); }
  // Pages that Extend can still hand out: the free ones, and those that can be evicted from the
  // prefix index because no sequence uses them.
  int num_available_pages() const;

  KvSequence NewSequence(int variant = 0, CacheSalt salt = nullptr) {
    return KvSequence(this, variant, std::move(salt));
  }

  // Starts a sequence with the longest prefix of `tokens` that was published with the same variant
  // and an equal salt. The length() of the sequence is the length of that prefix: a multiple of the
  // page size, and less than tokens.size(), so that at least one token is left to feed.
  KvSequence NewSequenceWithPrefix(absl::Span<const TokenId> tokens, int variant = 0,
                                   CacheSalt salt = nullptr);

  // Offers a sequence's full pages to later prompts. If the same text is already published, the
  // sequence switches to the published pages, which hold the same bits, and gives its own back.
  // REQUIRES: `tokens` are committed and begin with the sequence's contents, whose keys and values
  // are written; sequence->length() <= tokens.size(). Never publish a page of draft tokens.
  void Publish(absl::Span<const TokenId> tokens, KvSequence* sequence);

  // Returns a sequence that holds the longest published run of whole pages of `tokens`.
  KvSequence HoldPublished(absl::Span<const TokenId> tokens, int variant, CacheSalt salt);

  // Notified when pages are published or leave the prefix index. Must not change the cache, and
  // must not throw.
  class Observer {
   public:
    virtual ~Observer() = default;
    // `page` was published with `tokens`. They follow the tokens of `parent` (PrefixIndex::RootOf
    // at the start of a text) in a text with this salt.
    virtual void OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                           const CacheSalt& salt) = 0;
    // Publish has ended: OnPublish was called for each of its pages.
    virtual void OnAllPublished() {}
    // A published page was evicted.
    virtual void OnEvict(PageId /*page*/) {}
    // `from` was copied to `to`, which a sequence is about to write to.
    virtual void OnCopy(PageId /*from*/, PageId /*to*/) {}
  };
  // Observers are notified in the order in which they were added. Remove an observer before it is
  // destroyed.
  void AddObserver(Observer* observer) { observers_.push_back(observer); }
  void RemoveObserver(Observer* observer);

  // Copy pages out of the cache, or into it. The bytes of each are its pieces in order, then its
  // state; layout().page_bytes() in all. Backend::ReadPages has the contract of `take` and of
  // results. It takes few calls of a device for many pages.
  absl::Status ReadPages(absl::Span<const PageId> pages,
                         absl::FunctionRef<bool(int index, Backend::CopyPage copy)> take) const;
  absl::Status WritePages(absl::Span<const PageId> pages,
                          absl::Span<const absl::Span<const std::byte>> from);

  // Copies pages within the cache, as copy-on-write does. The other ranks of a group repeat the
  // copies of rank 0 (model/transformer.h).
  void CopyPages(absl::Span<const PageCopy> copies);

  // Checks that each page is either free, or has exactly one reference for each of the given
  // sequences (pass all that exist) that holds it and one for the prefix index, that no free page
  // is in use, and that the index is consistent. Returns INTERNAL that names the page if not.
  absl::Status CheckIntegrity(absl::Span<const KvSequence* const> sequences) const;

  // The page's state, f32 [layout().state_size] in the backend's memory. Null if pages do not have
  // states or the cache does not have storage.
  float* StateOf(PageId page) const;

  // A view of one layer's keys and values for attention. The caller adds page tables, lengths and
  // the batch.
  PagedKvView LayerView(int layer) const;

 private:
  friend class KvSequence;
  friend class PagedKvCacheTestPeer;
  PagedKvCache(Backend* backend, const KvLayout& layout, int num_pages, Buffer storage);
  // Evicts published pages until `count` are free. Returns false, and evicts nothing, if fewer than
  // `count` are available.
  bool MakeFree(int count);
  // Adds, or removes, a sequence's reference to a page that is in use.
  void Hold(PageId page);
  void Release(PageId page);
  // A piece of a page (see KvLayout): one layer's keys, or values, for one head.
  uint32_t* PieceOf(PageId page, int piece) const;
  KvPages WholePages() const;

  Backend* backend_;
  KvLayout layout_;
  Buffer storage_;  // whole groups of pages, see KvLayout, then the states of their pages
  PagePool pool_;
  PrefixIndex prefixes_;
  std::vector<Observer*> observers_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PAGED_KV_CACHE_H_
