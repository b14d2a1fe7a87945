#ifndef TANDEM_KERNELS_CPU_KV_ROWS_H_
#define TANDEM_KERNELS_CPU_KV_ROWS_H_

#include "kernels/paged_kv.h"

namespace tandem {

// Writes one token's key and value of one head, head_dim elements each, into place `place` of page
// `page`, rounded to the cache's dtype: bf16 to nearest even; int8 to nearest even of x * (127 /
// largest |x|), the scale being largest / 127. A row with a NaN or an infinity becomes NaN.
void StoreKvRow(const PagedKvView& kv, int64_t page, int kv_head, int place, const float* key,
                const float* value);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_KV_ROWS_H_
