#ifndef TANDEM_KERNELS_PAGED_KV_H_
#define TANDEM_KERNELS_PAGED_KV_H_

#include <cstdint>

#include "kernels/matrix.h"

namespace tandem {

// One layer of a batch's KV cache as kernels see it. All pointers are the backend's.
//
// The keys of head h at position t of a sequence are the head_dim values from
//   keys + page * page_stride + (h * page_size + t % page_size) * head_dim
// where page = page_tables[sequence * max_pages + t / page_size]; values likewise. Positions from
// lengths[sequence] on are garbage by definition and may hold NaN.
struct PagedKvView {
  void* keys = nullptr;
  void* values = nullptr;
  const int32_t* page_tables = nullptr;  // [batch, max_pages]
  const int32_t* lengths = nullptr;      // [batch], counting the tokens of this pass
  int batch = 0;
  int max_pages = 0;
  int page_size = 0;
  int64_t page_stride = 0;  // elements from one page to the next
  int num_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kF32;
};

// Which rows of a pass belong to which sequence: those in [starts[i], starts[i + 1]) to sequence i,
// its last tokens in order. So row r stands at position lengths[i] - (starts[i + 1] - r), and sees
// the positions up to and including its own.
struct RaggedRows {
  const int32_t* starts = nullptr;  // [batch + 1], the backend's
  int batch = 0;
  int num_rows = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_PAGED_KV_H_
