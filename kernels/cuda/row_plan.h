// The plan of a pass's rows. Includes only plain headers, because kernel_lab uses it too.
#ifndef TANDEM_KERNELS_CUDA_ROW_PLAN_H_
#define TANDEM_KERNELS_CUDA_ROW_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/launch_shapes.h"

namespace tandem::cuda {

// Returns the plan of a pass's rows (PlanLayout) for a device with `num_sms` multiprocessors.
//   starts: [batch + 1], as RaggedRows::starts
inline std::vector<int32_t> RowPlanOf(const std::vector<int32_t>& starts, int num_rows,
                                      const AttentionSizes& sizes, int num_sms) {
  AttendTask task;
  task.rows = {.batch = static_cast<int>(starts.size()) - 1, .num_rows = num_rows};
  task.kv.num_kv_heads = sizes.num_kv_heads;
  task.kv.head_dim = sizes.head_dim;
  task.kv.dtype = sizes.dtype;
  task.num_heads = sizes.num_heads;
  task.num_sms = num_sms;
  const bool attends = sizes.num_kv_heads > 0 && num_rows > 0;
  if (attends) task.decode_rows = DecodeRowsBesidePrompts(task);
  const PlanLayout at = PlanLayoutOf(task);
  std::vector<int32_t> plan(at.num_integers, -1);
  for (int s = 0; s < task.rows.batch; ++s) {
    for (int row = starts[s]; row < starts[s + 1]; ++row) {
      plan[int64_t{row} * kPlaceIntegers] = s;
      plan[int64_t{row} * kPlaceIntegers + 1] = starts[s + 1] - row;
    }
  }
  if (!attends) return plan;
  const int heads = sizes.num_heads / sizes.num_kv_heads;
  // Lists the units of the sequences with [least, most] vectors.
  const auto add_units = [&](int64_t first, int vectors, int least, int most) {
    int32_t* unit = plan.data() + first;
    for (int s = 0; s < task.rows.batch; ++s) {
      const int rows = starts[s + 1] - starts[s];
      if (rows * heads < least || rows * heads > most) continue;
      for (int v = 0; v < rows * heads; v += vectors, unit += kUnitIntegers) {
        unit[0] = s;
        unit[1] = starts[s];
        unit[2] = rows;
        unit[3] = v;
      }
    }
  };
  const bool divides = task.decode_rows > 0;
  if (at.num_prompts > 0) {
    add_units(at.prompts, kPromptVectors, divides ? kPromptVectors : 0, INT32_MAX);
  }
  if (at.num_few > 0) {
    add_units(at.few, kAttendSizes[AttendSizeOf(task)].vectors, 0,
              divides ? kPromptVectors - 1 : INT32_MAX);
  }
  return plan;
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ROW_PLAN_H_
