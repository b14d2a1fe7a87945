#ifndef TANDEM_KVCACHE_KV_LAYOUT_H_
#define TANDEM_KVCACHE_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/paged_kv.h"

namespace tandem {

// The shape of one model's cache, [groups, num_layers, 2 (keys, values), num_kv_heads,
// kKvGroupPages, page_size * words of a row]: a page holds `page_size` tokens of every layer and
// head, see PagedKvView. What attention reads one after the other, a head's pages, lies side by
// side in a group, and sequences are given pages in increasing order as long as these are free:
// with a page's pieces side by side one row behind 4,096 tokens took 1.3 (f32) and 1.65 times
// (bf16) as long as reading, instead of 1.1. With all pages of a head side by side the first token
// of all would touch, and wait for, memory in as many places as there are pieces.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int page_size = 16;  // tokens
  KvDType dtype = KvDType::kF32;
  // Floats that are kept with each page: the state that the target left for a draft head at the
  // page's last token.
  int state_size = 0;

  // Heads' keys, and their values, of all layers: the pieces of a page.
  int num_pieces() const { return num_layers * 2 * num_kv_heads; }
  // Words of one piece, with their scales.
  size_t piece_words() const { return size_t(page_size) * KvRowWords(dtype, head_dim); }
  size_t page_bytes() const {
    return (num_pieces() * piece_words() + state_size) * sizeof(uint32_t);
  }
};

// "f32", "bf16" or "int8"; INVALID_ARGUMENT naming `field` for others. "auto" is `automatic`, where
// that is given.
absl::StatusOr<KvDType> ParseKvDType(std::string_view name, absl::string_view field = "kv_cache",
                                     std::optional<KvDType> automatic = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_LAYOUT_H_
