#include "kvcache/kv_sequence.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {
namespace {

int64_t PagesFor(int64_t tokens, int page_size) { return (tokens + page_size - 1) / page_size; }

}  // namespace

KvSequence::~KvSequence() { Truncate(0); }

// Only a partly filled page is written to, and only the last page can be partly filled.
bool KvSequence::CopiesTail(int count) const {
  return !is_overlay_ && count > 0 && length_ % cache_->layout_.page_size != 0 &&
         cache_->pool_.IsShared(pages_.back());
}

int64_t KvSequence::PagesToExtend(int count) const {
  TANDEM_CHECK(cache_ != nullptr);
  TANDEM_CHECK(count >= 0);
  // An overlay may already hold more pages than it needs.
  return std::max<int64_t>(0, PagesFor(int64_t{length_} + count, cache_->layout_.page_size) -
                                  static_cast<int64_t>(pages_.size())) +
         CopiesTail(count);
}

absl::Status KvSequence::Extend(int count) {
  const int64_t length = int64_t{length_} + count;
  const int64_t needed = PagesToExtend(count);
  const bool copies_tail = CopiesTail(count);
  if (length > INT_MAX || needed > cache_->num_pages() ||
      !cache_->MakeFree(static_cast<int>(needed))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("kv cache: ", count, " more tokens need ", needed, " pages, ",
                     cache_->num_available_pages(), " of ", cache_->num_pages(), " available"));
  }
  const size_t num_held = pages_.size();
  pages_.resize(num_held + needed - (copies_tail ? 1 : 0), PrefixIndex::kNoPage);
  if (copies_tail) {
    PageId& tail = pages_[num_held - 1];
    const PageId fresh = cache_->pool_.Take();
    const PageCopy copy{.from = tail, .to = fresh};
    cache_->CopyPages({&copy, 1});
    cache_->Release(tail);
    tail = fresh;
  }
  for (size_t i = num_held; i < pages_.size(); ++i) pages_[i] = cache_->pool_.Take();
  length_ = static_cast<int>(length);
  return absl::OkStatus();
}

void KvSequence::Truncate(int length) {
  TANDEM_CHECK(0 <= length && length <= length_);
  if (cache_ == nullptr) return;
  const size_t kept = PagesFor(length, cache_->layout_.page_size);
  // Last page first: the prefix index relies on it.
  for (; pages_.size() > kept; pages_.pop_back()) cache_->Release(pages_.back());
  length_ = length;
}

KvSequence KvSequence::Fork() const {
  KvSequence fork(cache_, variant_, salt_);
  fork.pages_ = pages_;
  fork.length_ = length_;
  for (const PageId page : pages_) cache_->Hold(page);
  return fork;
}

KvSequence KvSequence::Overlay(int length) const {
  TANDEM_CHECK(0 <= length && length <= length_);
  KvSequence overlay = Fork();
  overlay.length_ = length;
  overlay.is_overlay_ = true;
  return overlay;
}

}  // namespace tandem
