#ifndef TANDEM_KVCACHE_PREFIX_INDEX_H_
#define TANDEM_KVCACHE_PREFIX_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/hash_map.h"
#include "kvcache/kv_sequence.h"
#include "kvcache/page_pool.h"
#include "tandem/types.h"

namespace tandem {

// Maps prefixes of texts to the pages that hold them. A published page is a node of a tree: its
// parent is the page before it, so the key of a page depends on every token before it and on the
// salt of its text. Keys are a hash chain. A hit also compares tokens, parents and the salts of
// first pages, so equal hashes never mix up texts or salts.
//
// Pages are evicted in the order in which sequences last released them, and never before the pages
// that follow them. A page is *blocked*, and cannot be evicted, while a sequence uses it or a page
// below it. The other pages are in one list, most recently used first. A sequence releases its last
// page first, so a page precedes all pages below it in the list, and the last page of the list is
// always a leaf.
//
// Does not count references: the caller that inserts a page holds a reference for the index. Every
// operation is amortised O(1), provided that a sequence that uses a page uses all pages before it.
// Thread-compatible.
class PrefixIndex {
 public:
  static constexpr PageId kNoPage = -1;
  // The parent of the first page of every text of a variant (KvSequence::variant). For variant 0 it
  // is kNoPage.
  static constexpr PageId RootOf(int variant) { return kNoPage - variant; }
  // Computes the key of a page from its tokens and its parent's key (at the start of a text: from
  // the variant and the salt).
  using Hash = uint64_t (*)(uint64_t parent_key, absl::Span<const TokenId> tokens);
  static uint64_t ChainHash(uint64_t parent_key, absl::Span<const TokenId> tokens);

  PrefixIndex(int num_pages, int page_size, Hash hash = &ChainHash)
      : page_size_(page_size), hash_(hash), nodes_(num_pages) {}

  int num_published() const { return num_published_; }
  // How many times EvictLeastRecent can be called.
  int num_evictable() const { return num_evictable_; }
  bool Contains(PageId page) const { return nodes_[page].published; }
  // Index of a published page in its text, from 0.  REQUIRES: Contains(page).
  int DepthOf(PageId page) const {
    TANDEM_DCHECK(Contains(page));
    return nodes_[page].depth;
  }
  absl::Span<const TokenId> TokensOf(PageId page) const {
    TANDEM_DCHECK(Contains(page));
    return nodes_[page].tokens;
  }

  // Returns the page with `tokens` after `parent` (RootOf(variant) at the start of a text), or
  // kNoPage. `salt` is the salt of the text.
  PageId Find(PageId parent, absl::Span<const TokenId> tokens,
              const CacheSalt& salt = nullptr) const;

  // Publishes a page that a sequence uses.
  // REQUIRES: Find(parent, tokens, salt) == kNoPage, !Contains(page), tokens.size() is the page
  // size.
  void Insert(PageId page, PageId parent, absl::Span<const TokenId> tokens,
              const CacheSalt& salt = nullptr);

  // Called when the first sequence takes a published page, and when the last one releases it.
  // REQUIRES: Contains(page).
  void MarkUsed(PageId page) { Block(page); }
  void MarkUnused(PageId page) { Unblock(page); }

  // Removes the least recently used page that is not blocked from the index, and returns it.
  // REQUIRES: num_evictable() > 0.
  PageId EvictLeastRecent();

  // Returns INTERNAL that names the page unless every link, count and order above is right.
  // `is_used(page)` says whether a sequence uses a published page.
  template <typename IsUsed>
  absl::Status CheckIntegrity(const IsUsed& is_used) const {
    std::vector<bool> used(nodes_.size());
    for (PageId page = 0; page < static_cast<PageId>(nodes_.size()); ++page) {
      used[page] = Contains(page) && is_used(page);
    }
    return CheckNodes(used);
  }

 private:
  friend class PagedKvCacheTestPeer;

  struct Node {
    bool published = false;
    PageId parent = kNoPage;  // or another root
    int depth = 0;
    int blockers = 0;  // 1 if sequences use it, plus the number of its blocked children
    uint64_t key = 0;
    PageId more_recent = kNoPage;  // neighbours in the list, if blockers == 0
    PageId less_recent = kNoPage;
    std::vector<TokenId> tokens;
    CacheSalt salt;  // first pages only
  };

  static bool IsRoot(PageId parent) { return parent <= kNoPage; }
  uint64_t KeyOf(PageId parent, absl::Span<const TokenId> tokens, const CacheSalt& salt) const;
  void Block(PageId page);
  void Unblock(PageId page);
  void PushMostRecent(PageId page);
  void RemoveFromList(PageId page);
  void Forget(PageId page);
  absl::Status CheckNodes(const std::vector<bool>& used) const;
  absl::Status CheckList() const;

  int page_size_;
  Hash hash_;
  std::vector<Node> nodes_;  // [num_pages]
  HashMap<uint64_t, absl::InlinedVector<PageId, 1>> pages_of_key_;
  PageId most_recent_ = kNoPage;
  PageId least_recent_ = kNoPage;
  int num_published_ = 0;
  int num_evictable_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PREFIX_INDEX_H_
