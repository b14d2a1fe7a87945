#ifndef TANDEM_KERNELS_CPU_ISA_HAS_AVX_VNNI_H_
#define TANDEM_KERNELS_CPU_ISA_HAS_AVX_VNNI_H_

#include <cpuid.h>

namespace tandem {

// Leaf 7, sub-leaf 1, EAX bit 4; the __builtin_cpu_supports of GCC 12 and clang 14 do not know it.
// Of a system that keeps wide registers: ask for "avx2" too.
inline bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_HAS_AVX_VNNI_H_
