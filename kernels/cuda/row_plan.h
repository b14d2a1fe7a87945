#ifndef TANDEM_KERNELS_CUDA_ROW_PLAN_H_
#define TANDEM_KERNELS_CUDA_ROW_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/paged_kv.h"

namespace tandem::cuda {

// Returns the plan of a pass's rows (PlanLayout) for a device with `num_sms` multiprocessors.
std::vector<int32_t> RowPlanOf(absl::Span<const int32_t> starts, int num_rows,
                               const AttentionSizes& sizes, int num_sms);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ROW_PLAN_H_
