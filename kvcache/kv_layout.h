#ifndef TANDEM_KVCACHE_KV_LAYOUT_H_
#define TANDEM_KVCACHE_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/paged_kv.h"

namespace tandem {

// The shape of one model's cache. A page holds `page_size` tokens of every layer:
// [num_layers, 2 (keys, values), num_kv_heads, page_size * words of a row], see PagedKvView.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int page_size = 16;  // tokens
  KvDType dtype = KvDType::kF32;

  // Words of the keys, or of the values, of one layer in one page, with their scales.
  size_t half_layer_words() const {
    return size_t(num_kv_heads) * page_size * KvRowWords(dtype, head_dim);
  }
  size_t page_words() const { return 2 * size_t(num_layers) * half_layer_words(); }
  size_t page_bytes() const { return page_words() * sizeof(uint32_t); }
};

// "f32", "bf16" or "int8"; INVALID_ARGUMENT for others.
absl::StatusOr<KvDType> ParseKvDType(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_KV_LAYOUT_H_
