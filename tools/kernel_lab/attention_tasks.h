// Attention as lines and passes launch it.
#ifndef TANDEM_TOOLS_KERNEL_LAB_ATTENTION_TASKS_H_
#define TANDEM_TOOLS_KERNEL_LAB_ATTENTION_TASKS_H_

#include "kernels/cuda/operations.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {

// The tables of a pass: `batch` sequences of equal lengths with equally many rows.
struct Sequences {
  int batch = 1;
  int rows_of_each = 1;
  int length = 1;  // of each, with its rows
  int max_pages = 1;
  std::vector<int32_t> starts;
  RaggedRows rows;  // without a plan
  const int32_t* page_tables = nullptr;
  const int32_t* lengths = nullptr;
};
Sequences MakeSequences(Lab& lab, int rows, int batch, int context);

// Bytes of the keys, or of the values, of a layer's pages.
size_t CacheBytes(const Sequences& sequences, const Model& model, KvDType dtype);
// A layer's cache: the `index`-th stretch of the pool.
PagedKvView CacheOf(Lab& lab, const Sequences& sequences, const Model& model, KvDType dtype,
                    int index);

// The plan of rows that begin at `starts`, on the device (kernels/cuda/row_plan.h).
const int32_t* PlanOf(Lab& lab, const std::vector<int32_t>& starts, const Model& model,
                      KvDType dtype);

// q: [rows, heads * head_dim]; its stride may be larger. Reserves what splits need.
cuda::AttendTask MakeAttend(Lab& lab, const Sequences& sequences, const Model& model,
                            const PagedKvView& kv, ConstMatrixView q, MatrixView out);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_ATTENTION_TASKS_H_
