#ifndef TANDEM_KVCACHE_PAGE_POOL_H_
#define TANDEM_KVCACHE_PAGE_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"

namespace tandem {

using PageId = int32_t;

// Hands out page numbers and counts references to them. Owns no memory. Thread-compatible.
class PagePool {
 public:
  explicit PagePool(int num_pages) : refs_(num_pages, 0) {
    for (PageId page = num_pages; page-- > 0;) free_.push_back(page);
  }

  int num_pages() const { return static_cast<int>(refs_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_refs(PageId page) const { return refs_[page]; }
  bool IsShared(PageId page) const { return refs_[page] > 1; }
  absl::Span<const PageId> free_pages() const { return free_; }

  // Returns a free page with one reference, the caller's.  REQUIRES: num_free() > 0.
  PageId Take() {
    TANDEM_CHECK(!free_.empty());
    const PageId page = free_.back();
    free_.pop_back();
    TANDEM_CHECK(refs_[page] == 0);
    refs_[page] = 1;
    return page;
  }
  // Adds or removes a reference.  REQUIRES: the page has one.
  void Ref(PageId page) {
    TANDEM_CHECK(refs_[page] > 0);
    ++refs_[page];
  }
  void Unref(PageId page) {
    TANDEM_CHECK(refs_[page] > 0);
    if (--refs_[page] == 0) free_.push_back(page);
  }

 private:
  friend class PagedKvCacheTestPeer;

  std::vector<int32_t> refs_;  // [num_pages]
  std::vector<PageId> free_;
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_PAGE_POOL_H_
