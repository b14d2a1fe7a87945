#ifndef TANDEM_KERNELS_CPU_KV_ROWS_H_
#define TANDEM_KERNELS_CPU_KV_ROWS_H_

#include "kernels/paged_kv.h"

namespace tandem {

// Writes the key and the value of one token and head, head_dim elements each, into place `place` of
// page `page`. Rounds to the cache's dtype: to the nearest bf16 (ties to even), or for int8 to the
// nearest integer (ties to even) of x * (127 / largest |x|), with the scale largest |x| / 127. In
// an int8 cache a row that contains a NaN or an infinity becomes NaN.
void StoreKvRow(const PagedKvView& kv, int64_t page, int kv_head, int place, const float* key,
                const float* value);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_KV_ROWS_H_
