#include "bench/fill_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "kernels/paged_kv.h"
#include "kvcache/kv_layout.h"

namespace tandem {
namespace {

constexpr uint32_t kQuarters = 0x3E803E80;  // 0.25 twice in bf16, 0.2505 in f32

}  // namespace

void FillCache(Backend* backend, PagedKvCache* cache) {
  TANDEM_CHECK(cache->num_free_pages() == cache->num_pages());
  const KvLayout& layout = cache->layout();
  const size_t num_groups = (cache->num_pages() + kKvGroupPages - 1) / kKvGroupPages;
  const size_t num_bytes = num_groups * kKvGroupPages * layout.page_bytes();
  const std::vector<uint32_t> piece(layout.piece_words(), kQuarters);
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(piece.data()),
                                         piece.size() * sizeof(uint32_t));
  // A large cache has millions of pieces, but as one stretch it has doubled in few copies.
  auto* const all = static_cast<std::byte*>(cache->LayerView(0).keys);
  backend->Upload(bytes, all);
  for (size_t done = bytes.size(); done < num_bytes; done *= 2) {
    backend->Copy(all, all + done, std::min(done, num_bytes - done));
  }
}

}  // namespace tandem
