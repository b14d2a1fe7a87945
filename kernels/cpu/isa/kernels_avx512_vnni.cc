#include "kernels/cpu/isa/simd_avx512.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/isa/int8_attention_avx512.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {
namespace {

constexpr CpuKernels MakeVnniKernelTable() {
  CpuKernels kernels = MakeKernelTable<VnniDot>("avx512_vnni");
  kernels.attend_rounded[static_cast<int>(KvDType::kInt8)] = AttendOf<Int8DotKv>;
  return kernels;
}

}  // namespace

constinit const CpuKernels kAvx512VnniKernels = MakeVnniKernelTable();

}  // namespace tandem
