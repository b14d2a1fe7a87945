#ifndef TANDEM_KVCACHE_KV_SEQUENCE_H_
#define TANDEM_KVCACHE_KV_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvcache/page_pool.h"

namespace tandem {

class PagedKvCache;

// Sequences share pages only if their salts are equal. Null is a salt of its own.
using CacheSalt = std::shared_ptr<const std::string>;

inline bool IsSameSalt(const CacheSalt& a, const CacheSalt& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

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
  // The keys and values of a text depend on this as well: see LanguageModel::cache_variant.
  int variant() const { return variant_; }
  const CacheSalt& salt() const { return salt_; }
  PagedKvCache* cache() const { return cache_; }
  absl::Span<const PageId> pages() const { return pages_; }

  // Returns how many pages Extend(count) would take from the pool, including one for the copy of a
  // shared last page.
  // REQUIRES: count >= 0.
  int64_t PagesToExtend(int count) const;

  // Makes room for `count` more tokens; the next forward pass writes them. If the tokens would go
  // into a page shared with a fork or the prefix index, that page is copied first. When the pool is
  // empty, pages that only the prefix index holds are evicted.
  // Returns RESOURCE_EXHAUSTED, and changes nothing, if there are still too few pages.
  // REQUIRES: count >= 0.
  absl::Status Extend(int count);

  // Forgets every token from position `length` on. Cannot fail; copies nothing.
  // REQUIRES: 0 <= length <= this->length().
  void Truncate(int length);

  // Returns a sequence with the same contents. The two share every page until one of them writes.
  KvSequence Fork() const;

  // Returns a sequence with the same pages but another length, for the passes of a draft head.
  // These write a layer of their own into the pages, in place although the pages are shared. Extend
  // takes new pages only past those already held. The original sequence must not change while its
  // overlay lives. Drop the overlay after a failed pass.
  // REQUIRES: 0 <= length <= this->length().
  KvSequence Overlay(int length) const;

 private:
  friend class PagedKvCache;
  friend class PagedKvCacheTestPeer;
  KvSequence(PagedKvCache* cache, int variant, CacheSalt salt)
      : cache_(cache), variant_(variant), salt_(std::move(salt)) {}
  bool CopiesTail(int count) const;
  void swap(KvSequence& other) {
    std::swap(cache_, other.cache_);
    std::swap(pages_, other.pages_);
    std::swap(length_, other.length_);
    std::swap(variant_, other.variant_);
    std::swap(salt_, other.salt_);
    std::swap(is_overlay_, other.is_overlay_);
  }

  PagedKvCache* cache_ = nullptr;
  std::vector<PageId> pages_;  // pages_[i] holds positions [i * page_size, (i + 1) * page_size)
  int length_ = 0;
  int variant_ = 0;
  CacheSalt salt_;
  bool is_overlay_ = false;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_SEQUENCE_H_
