// The instruction for integers that AVX-512 has with VNNI.
#ifndef TANDEM_KERNELS_CPU_ISA_VNNI_DOT_AVX512_H_
#define TANDEM_KERNELS_CPU_ISA_VNNI_DOT_AVX512_H_

#include <immintrin.h>

namespace tandem {
namespace {

// As PlainDot. Of the intrinsic GCC 12 keeps every sum of a loop in two registers and in memory.
struct VnniDot {
  static constexpr bool kHasPairs = false;
  static constexpr bool kIsSigned = false;
  static __m512i Dot(__m512i sum, __m512i a, __m512i b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
};

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_VNNI_DOT_AVX512_H_
