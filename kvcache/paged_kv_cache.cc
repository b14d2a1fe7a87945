#include "kvcache/paged_kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

int NumGroups(int num_pages) { return num_pages / kKvGroupPages + (num_pages % kKvGroupPages > 0); }

// Returns the size of all pages in bytes, or INVALID_ARGUMENT.
absl::StatusOr<size_t> StorageBytes(const KvLayout& layout, int num_pages) {
  size_t bytes = 2 * sizeof(uint32_t) * kKvGroupPages;
  const int num_groups = NumGroups(num_pages);
  const struct {
    const char* name;
    int value;
    int factor;
  } factors[] = {{"layers", layout.num_layers, layout.num_layers},
                 {"key-value heads", layout.num_kv_heads, layout.num_kv_heads},
                 {"head size", layout.head_dim, KvRowWords(layout.dtype, layout.head_dim)},
                 {"page size", layout.page_size, layout.page_size},
                 {"pages", num_pages, num_groups}};
  bool fits = true;
  for (const auto& factor : factors) {
    if (factor.value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("kv cache: ", factor.name, " ", factor.value, " is not positive"));
    }
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<size_t>(factor.factor), &bytes);
  }
  if (layout.state_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv cache: state size ", layout.state_size, " is negative"));
  }
  // At most 2^31 pages of 2^31 floats, rounded up: less than 2^64 bytes.
  const size_t state_bytes =
      size_t(num_groups) * kKvGroupPages * (layout.state_size * sizeof(float));
  if (!fits || __builtin_add_overflow(bytes, state_bytes, &bytes) ||
      bytes > size_t{std::numeric_limits<ptrdiff_t>::max()}) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv cache: ", num_pages, " pages of ", layout.num_layers, " layers, ", layout.num_kv_heads,
        " key-value heads of ", layout.head_dim, ", ", layout.page_size, " tokens and states of ",
        layout.state_size, " take more than ", std::numeric_limits<ptrdiff_t>::max(), " bytes"));
  }
  return bytes;
}

absl::Status BrokenPage(PageId page, absl::string_view what) {
  return absl::InternalError(absl::StrCat("kv cache: page ", page, ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PagedKvCache>> PagedKvCache::Create(Backend* backend,
                                                                   const KvLayout& layout,
                                                                   int num_pages) {
  ASSIGN_OR_RETURN(const size_t bytes, StorageBytes(layout, num_pages));
  Buffer storage;
  if (backend != nullptr) {
    ASSIGN_OR_RETURN(storage, backend->Allocate(bytes));
  }
  return std::unique_ptr<PagedKvCache>(
      new PagedKvCache(backend, layout, num_pages, std::move(storage)));
}

PagedKvCache::PagedKvCache(Backend* backend, const KvLayout& layout, int num_pages, Buffer storage)
    : backend_(backend),
      layout_(layout),
      storage_(std::move(storage)),
      pool_(num_pages),
      prefixes_(num_pages, layout.page_size) {}

KvSequence PagedKvCache::NewSequenceWithPrefix(absl::Span<const TokenId> tokens, int variant,
                                               CacheSalt salt) {
  return HoldPublished(tokens.first(std::max<size_t>(tokens.size(), 1) - 1), variant,
                       std::move(salt));
}

KvSequence PagedKvCache::HoldPublished(absl::Span<const TokenId> tokens, int variant,
                                       CacheSalt salt) {
  KvSequence sequence(this, variant, std::move(salt));
  const size_t page_size = layout_.page_size;
  PageId last = PrefixIndex::RootOf(variant);
  for (size_t begin = 0; begin + page_size <= tokens.size(); begin += page_size) {
    last = prefixes_.Find(last, tokens.subspan(begin, page_size), sequence.salt_);
    if (last == PrefixIndex::kNoPage) break;
    sequence.pages_.push_back(last);
    Hold(last);
  }
  sequence.length_ = static_cast<int>(sequence.pages_.size() * page_size);
  return sequence;
}

void PagedKvCache::Publish(absl::Span<const TokenId> tokens, KvSequence* sequence) {
  TANDEM_CHECK(sequence->cache_ == this);
  TANDEM_CHECK(tokens.size() >= static_cast<size_t>(sequence->length_));
  const int page_size = layout_.page_size;
  const int num_full = sequence->length_ / page_size;
  const auto tokens_of = [&](int i) { return tokens.subspan(size_t(i) * page_size, page_size); };

  // If a page is published, so are all pages before it: find the last published one.
  std::vector<PageId>& pages = sequence->pages_;
  int num_known = num_full;
  while (num_known > 0 && !prefixes_.Contains(pages[num_known - 1])) --num_known;
  PageId last = num_known > 0 ? pages[num_known - 1] : PrefixIndex::RootOf(sequence->variant_);
  if (num_known > 0) {  // `tokens` must be the sequence's contents
    TANDEM_CHECK(prefixes_.DepthOf(last) == num_known - 1);
    TANDEM_CHECK(prefixes_.TokensOf(last) == tokens_of(num_known - 1));
  }
  for (int i = num_known; i < num_full; ++i) {
    const PageId found = prefixes_.Find(last, tokens_of(i), sequence->salt_);
    if (found == PrefixIndex::kNoPage) {
      prefixes_.Insert(pages[i], last, tokens_of(i), sequence->salt_);
      pool_.Ref(pages[i]);
      for (Observer* observer : observers_) {
        observer->OnPublish(pages[i], last, tokens_of(i), sequence->salt_);
      }
    } else {
      Hold(found);
      Release(std::exchange(pages[i], found));
    }
    last = pages[i];
  }
  for (Observer* observer : observers_) observer->OnAllPublished();
}

void PagedKvCache::RemoveObserver(Observer* observer) {
  const auto found = std::find(observers_.begin(), observers_.end(), observer);
  TANDEM_CHECK(found != observers_.end());
  observers_.erase(found);
}

int PagedKvCache::num_available_pages() const {
  return pool_.num_free() + prefixes_.num_evictable();
}

bool PagedKvCache::MakeFree(int count) {
  if (count > num_available_pages()) return false;
  while (pool_.num_free() < count) {
    const PageId page = prefixes_.EvictLeastRecent();
    pool_.Unref(page);
    for (Observer* observer : observers_) observer->OnEvict(page);
  }
  return true;
}

void PagedKvCache::Hold(PageId page) {
  pool_.Ref(page);
  if (pool_.num_refs(page) == 2 && prefixes_.Contains(page)) prefixes_.MarkUsed(page);
}

void PagedKvCache::Release(PageId page) {
  pool_.Unref(page);
  if (pool_.num_refs(page) == 1 && prefixes_.Contains(page)) prefixes_.MarkUnused(page);
}

void PagedKvCache::CopyPages(absl::Span<const PageCopy> copies) {
  for (Observer* observer : observers_) {
    for (const PageCopy& copy : copies) observer->OnCopy(copy.from, copy.to);
  }
  if (backend_ != nullptr) backend_->CopyPages(WholePages(), copies);
}

absl::Status PagedKvCache::ReadPages(
    absl::Span<const PageId> pages,
    absl::FunctionRef<bool(int index, Backend::CopyPage copy)> take) const {
  if (backend_ != nullptr) return backend_->ReadPages(WholePages(), pages, take);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (!take(static_cast<int>(i), [](absl::Span<std::byte>) {})) break;
  }
  return absl::OkStatus();
}

absl::Status PagedKvCache::WritePages(absl::Span<const PageId> pages,
                                      absl::Span<const absl::Span<const std::byte>> from) {
  TANDEM_CHECK(from.size() == pages.size());
  for (const auto bytes : from) TANDEM_CHECK(bytes.size() == layout_.page_bytes());
  return backend_ == nullptr ? absl::OkStatus() : backend_->WritePages(from, pages, WholePages());
}

KvPages PagedKvCache::WholePages() const {
  return {.pieces = PieceOf(0, 0),
          .states = reinterpret_cast<uint32_t*>(StateOf(0)),
          .num_pieces = layout_.num_pieces(),
          .piece_words = static_cast<int64_t>(layout_.piece_words()),
          .state_words = layout_.state_size};
}

absl::Status PagedKvCache::CheckIntegrity(absl::Span<const KvSequence* const> sequences) const {
  std::vector<int> holders(num_pages());
  for (const KvSequence* sequence : sequences) {
    if (sequence->cache_ == nullptr) continue;
    TANDEM_CHECK(sequence->cache_ == this);
    const int64_t page_size = layout_.page_size;
    if (static_cast<int64_t>(sequence->pages_.size()) !=
        (sequence->length_ + page_size - 1) / page_size) {
      return absl::InternalError(absl::StrCat("kv cache: a sequence of ", sequence->length_,
                                              " tokens has ", sequence->pages_.size(), " pages"));
    }
    for (const PageId page : sequence->pages_) {
      if (page < 0 || page >= num_pages()) return BrokenPage(page, "no such page");
      ++holders[page];
    }
  }
  RETURN_IF_ERROR(prefixes_.CheckIntegrity([&](PageId page) { return holders[page] > 0; }));
  for (PageId page = 0; page < num_pages(); ++page) {
    const int expected = holders[page] + prefixes_.Contains(page);
    if (pool_.num_refs(page) != expected) {
      return BrokenPage(page, absl::StrCat("counted ", pool_.num_refs(page), " times, held ",
                                           holders[page], " times by sequences and ",
                                           int{prefixes_.Contains(page)}, " by the index"));
    }
  }
  std::vector<bool> is_free(num_pages());
  for (const PageId page : pool_.free_pages()) {
    if (pool_.num_refs(page) != 0) return BrokenPage(page, "free and in use");
    if (is_free[page]) return BrokenPage(page, "free twice");
    is_free[page] = true;
  }
  for (PageId page = 0; page < num_pages(); ++page) {
    if (pool_.num_refs(page) == 0 && !is_free[page]) return BrokenPage(page, "lost");
  }
  return absl::OkStatus();
}

uint32_t* PagedKvCache::PieceOf(PageId page, int piece) const {
  return static_cast<uint32_t*>(storage_.data()) +
         ((static_cast<size_t>(page / kKvGroupPages) * layout_.num_pieces() + piece) *
              kKvGroupPages +
          page % kKvGroupPages) *
             layout_.piece_words();
}

float* PagedKvCache::StateOf(PageId page) const {
  if (backend_ == nullptr || layout_.state_size == 0) return nullptr;
  const size_t num_pieces = size_t(NumGroups(num_pages())) * kKvGroupPages * layout_.num_pieces();
  return static_cast<float*>(storage_.data()) + num_pieces * layout_.piece_words() +
         size_t(page) * layout_.state_size;
}

PagedKvView PagedKvCache::LayerView(int layer) const {
  TANDEM_CHECK(0 <= layer && layer < layout_.num_layers);
  PagedKvView view;
  if (backend_ != nullptr) {
    view.keys = PieceOf(0, 2 * layer * layout_.num_kv_heads);
    view.values = PieceOf(0, (2 * layer + 1) * layout_.num_kv_heads);
  }
  view.page_size = layout_.page_size;
  view.page_stride = static_cast<int64_t>(layout_.piece_words());
  view.head_stride = view.page_stride * kKvGroupPages;
  view.group_stride = view.head_stride * layout_.num_pieces();
  view.num_kv_heads = layout_.num_kv_heads;
  view.head_dim = layout_.head_dim;
  view.dtype = layout_.dtype;
  return view;
}

}  // namespace tandem
