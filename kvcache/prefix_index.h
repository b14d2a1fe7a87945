#ifndef TANDEM_KVCACHE_PREFIX_INDEX_H_
#define TANDEM_KVCACHE_PREFIX_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "kvcache/kv_sequence.h"
#include "kvcache/page_pool.h"
#include "tandem/types.h"

namespace tandem {

// Which pages hold which beginnings of texts. A published page is a node of a tree: its parent is
// the page before it, so the key of a page depends on every token before it and on the salt of its
// text. Keys are a hash chain; tokens, parents and the salts of first pages are compared on a hit,
// so equal hashes never mix texts, nor texts of different salts.
//
// Pages leave in the order in which sequences last let go of them, and never before the pages that
// follow them. A page is *blocked*, and cannot leave, while a sequence uses it or a page below it.
// The others stand in one list, most recently used first. A sequence lets go of its last page
// first, so a page stands in front of all pages below it and the last of the list is always a leaf.
//
// Counts no references: whoever inserts a page holds it once for the index. Every operation is O(1)
// amortised where sequences use the pages before those that they use, as they do.
// Thread-compatible.
class PrefixIndex {
 public:
  static constexpr PageId kNoPage = -1;
  // The parent of texts' first pages in caches of a variant (KvSequence::variant). That of the
  // first is kNoPage.
  static constexpr PageId RootOf(int variant) { return kNoPage - variant; }
  // The key of a page from its parent's key (at the start of a text of its variant and salt) and
  // its tokens.
  using Hash = uint64_t (*)(uint64_t parent_key, absl::Span<const TokenId> tokens);
  static uint64_t ChainHash(uint64_t parent_key, absl::Span<const TokenId> tokens);

  PrefixIndex(int num_pages, int page_size, Hash hash = &ChainHash)
      : page_size_(page_size), hash_(hash), nodes_(num_pages) {}

  int num_published() const { return num_published_; }
  // Pages that EvictLeastRecent can take, one after the other.
  int num_evictable() const { return num_evictable_; }
  bool Contains(PageId page) const { return nodes_[page].published; }
  // Place of a published page in its text, from 0.  REQUIRES: Contains(page).
  int DepthOf(PageId page) const {
    TANDEM_DCHECK(Contains(page));
    return nodes_[page].depth;
  }
  absl::Span<const TokenId> TokensOf(PageId page) const {
    TANDEM_DCHECK(Contains(page));
    return nodes_[page].tokens;
  }

  // The page after `parent` (RootOf: at the start of a text) whose tokens are `tokens`, or
  // kNoPage. `salt` is the text's.
  PageId Find(PageId parent, absl::Span<const TokenId> tokens,
              const CacheSalt& salt = nullptr) const;

  // Publishes a page that a sequence uses.
  // REQUIRES: Find(parent, tokens, salt) == kNoPage, !Contains(page), tokens.size() is the page
  // size.
  void Insert(PageId page, PageId parent, absl::Span<const TokenId> tokens,
              const CacheSalt& salt = nullptr);

  // The first sequence takes a published page; the last one lets go of it.
  // REQUIRES: Contains(page).
  void MarkUsed(PageId page) { Block(page); }
  void MarkUnused(PageId page) { Unblock(page); }

  // Takes the least recently used page that is not blocked out of the index.
  // REQUIRES: num_evictable() > 0.
  PageId EvictLeastRecent();
  // Empties the index and returns what was in it.
  std::vector<PageId> Clear();

  // INTERNAL, naming the page, unless every link, count and order above holds. `is_used(page)`:
  // whether a sequence uses a published page.
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
    int blockers = 0;  // its use by sequences (0 or 1) and its blocked children
    uint64_t key = 0;
    PageId more_recent = kNoPage;  // neighbours in the list, if blockers == 0
    PageId less_recent = kNoPage;
    std::vector<TokenId> tokens;
    CacheSalt salt;  // of a first page
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
  absl::flat_hash_map<uint64_t, absl::InlinedVector<PageId, 1>> pages_of_key_;
  PageId most_recent_ = kNoPage;
  PageId least_recent_ = kNoPage;
  int num_published_ = 0;
  int num_evictable_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PREFIX_INDEX_H_
