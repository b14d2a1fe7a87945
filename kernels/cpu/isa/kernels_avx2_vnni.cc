#include "kernels/cpu/isa/simd_avx2.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/isa/int8_attention_avx2.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {
namespace {

// AVX-VNNI: the integer dot product of some CPUs without AVX-512.
struct VnniDot {
  static constexpr bool kHasPairs = false;
  static constexpr bool kIsSigned = false;
  static Words Dot(Words sum, Words a, Words b) {
    return {_mm256_dpbusd_avx_epi32(sum.low, a.low, b.low),
            _mm256_dpbusd_avx_epi32(sum.high, a.high, b.high)};
  }
};

}  // namespace

constinit const CpuKernels kAvx2VnniKernels =
    WithInt8Attention(MakeKernelTable<VnniDot>("avx2_vnni"));

}  // namespace tandem
