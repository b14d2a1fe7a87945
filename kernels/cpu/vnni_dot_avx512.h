// The instruction for whole numbers that AVX-512 has with VNNI.
#ifndef TANDEM_KERNELS_CPU_VNNI_DOT_AVX512_H_
#define TANDEM_KERNELS_CPU_VNNI_DOT_AVX512_H_

#include <immintrin.h>

namespace tandem {
namespace {

// As PlainDot.
struct VnniDot {
  static __m512i Dot(__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_VNNI_DOT_AVX512_H_
