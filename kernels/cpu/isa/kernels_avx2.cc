#include "kernels/cpu/isa/simd_avx2.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/isa/int8_attention_avx2.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {

constinit const CpuKernels kAvx2Kernels = WithInt8Attention(MakeKernelTable("avx2"));

}  // namespace tandem
