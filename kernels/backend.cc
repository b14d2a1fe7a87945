#include "kernels/backend.h"

namespace tandem {
namespace {

// Calls copy(words in the cache, their bytes, offset in the page) for each piece and the state.
template <typename Copy>
void ForPartsOf(int32_t page, const KvPages& cache, Copy copy) {
  const size_t piece_bytes = cache.piece_words * sizeof(uint32_t);
  for (int piece = 0; piece < cache.num_pieces; ++piece) {
    copy(cache.pieces + cache.OffsetOf(page, piece), piece_bytes, piece * piece_bytes);
  }
  if (cache.state_words == 0) return;
  copy(cache.states + page * cache.state_words, cache.state_words * sizeof(uint32_t),
       cache.num_pieces * piece_bytes);
}

}  // namespace

absl::Status Backend::ReadPages(const KvPages& cache, absl::Span<const int32_t> pages,
                                absl::FunctionRef<bool(int index, CopyPage copy)> take) {
  const auto copy_page = [&](int32_t page, absl::Span<std::byte> into) {
    TANDEM_CHECK(into.size() == cache.page_words() * sizeof(uint32_t));
    ForPartsOf(page, cache, [&](const uint32_t* part, size_t bytes, size_t offset) {
      Download(part, into.subspan(offset, bytes));
    });
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto copy = [&](absl::Span<std::byte> into) { copy_page(pages[i], into); };
    if (!take(static_cast<int>(i), copy)) break;
  }
  return absl::OkStatus();
}

absl::Status Backend::WritePages(absl::Span<const absl::Span<const std::byte>> from,
                                 absl::Span<const int32_t> pages, const KvPages& cache) {
  for (size_t i = 0; i < pages.size(); ++i) {
    TANDEM_CHECK(from[i].size() == cache.page_words() * sizeof(uint32_t));
    ForPartsOf(pages[i], cache, [&](uint32_t* part, size_t bytes, size_t offset) {
      Upload(from[i].subspan(offset, bytes), part);
    });
  }
  return absl::OkStatus();
}

void Backend::CopyPages(const KvPages& cache, absl::Span<const PageCopy> copies) {
  for (const PageCopy& pages : copies) {
    for (int piece = 0; piece < cache.num_pieces; ++piece) {
      Copy(cache.pieces + cache.OffsetOf(pages.from, piece),
           cache.pieces + cache.OffsetOf(pages.to, piece), cache.piece_words * sizeof(uint32_t));
    }
    if (cache.state_words == 0) continue;
    Copy(cache.states + pages.from * cache.state_words, cache.states + pages.to * cache.state_words,
         cache.state_words * sizeof(uint32_t));
  }
}

}  // namespace tandem
