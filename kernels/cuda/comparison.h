#ifndef TANDEM_KERNELS_CUDA_COMPARISON_H_
#define TANDEM_KERNELS_CUDA_COMPARISON_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"

namespace tandem::cuda {

// Returns whether two arrays on the device are equal word for word. Waits for the device, but
// copies only counts to the host.   counts: [NumDifferenceCounts(num_words)], on the device
absl::StatusOr<bool> AreEqual(const void* a, const void* b, int64_t num_words, uint32_t* counts,
                              Backend* backend, Stream stream);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_COMPARISON_H_
