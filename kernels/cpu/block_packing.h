#ifndef TANDEM_KERNELS_CPU_BLOCK_PACKING_H_
#define TANDEM_KERNELS_CPU_BLOCK_PACKING_H_

#include <cstddef>

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {

// Writes a panel (block_layout.h) of 64 rows of blocks, null for outputs that do not exist.
void PackBlockPanel(const std::byte* const* rows, DType dtype, int inputs, std::byte* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_BLOCK_PACKING_H_
