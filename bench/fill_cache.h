#ifndef TANDEM_BENCH_FILL_CACHE_H_
#define TANDEM_BENCH_FILL_CACHE_H_

#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {

// Fills a cache with numbers of about 0.25, whatever its format, so that attention over pages that
// no pass has written meets neither NaN nor denormal numbers. `backend` is the cache's own.
// REQUIRES: every page is free.
void FillCache(Backend* backend, PagedKvCache* cache);

}  // namespace tandem

#endif  // TANDEM_BENCH_FILL_CACHE_H_
