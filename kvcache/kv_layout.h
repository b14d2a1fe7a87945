#ifndef TANDEM_KVCACHE_KV_LAYOUT_H_
#define TANDEM_KVCACHE_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/paged_kv.h"

namespace tandem {

// The shape of one model's cache: [groups, num_layers, 2 (keys, values), num_kv_heads,
// kKvGroupPages, page_size * words per row]. A page holds `page_size` tokens of every layer and
// head (see PagedKvView).
//
// Attention reads the pages of one head one after the other, so these are adjacent within a group,
// and a sequence gets pages in increasing order as long as those are free. If the pieces of a page
// were adjacent instead, one row after 4,096 tokens would take 1.3 (f32) or 1.65 times (bf16) as
// long as reading the memory, rather than 1.1. If all pages of a head were adjacent, the first
// token would touch, and wait for, memory in as many places as there are pieces.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int page_size = 16;  // tokens
  KvDType dtype = KvDType::kF32;
  // Floats stored with each page: the target's state at the page's last token, for a draft head.
  int state_size = 0;

  // Pieces of a page: one for each layer, keys or values, and head.
  int num_pieces() const { return num_layers * 2 * num_kv_heads; }
  // Words in one piece, including its scales.
  size_t piece_words() const { return size_t(page_size) * KvRowWords(dtype, head_dim); }
  size_t page_bytes() const {
    return (num_pieces() * piece_words() + state_size) * sizeof(uint32_t);
  }
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_LAYOUT_H_
