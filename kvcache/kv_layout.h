#ifndef TANDEM_KVCACHE_KV_LAYOUT_H_
#define TANDEM_KVCACHE_KV_LAYOUT_H_

#include <cstddef>

#include "kernels/matrix.h"

namespace tandem {

// The shape of one model's cache. A page holds `page_size` tokens of every layer:
// [num_layers, 2 (keys, values), num_kv_heads, page_size, head_dim].
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int page_size = 16;  // tokens
  DType dtype = DType::kF32;

  // Elements of the keys, or of the values, of one layer in one page.
  size_t half_layer_elements() const { return size_t(num_kv_heads) * page_size * head_dim; }
  size_t page_elements() const { return 2 * size_t(num_layers) * half_layer_elements(); }
  size_t page_bytes() const { return page_elements() * SizeOf(dtype); }
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_LAYOUT_H_
