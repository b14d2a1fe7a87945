#ifndef TANDEM_KERNELS_CPU_ISA_X86_FEATURES_H_
#define TANDEM_KERNELS_CPU_ISA_X86_FEATURES_H_

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem {

// Whether the CPU has AVX-VNNI: leaf 7, sub-leaf 1, EAX bit 4. __builtin_cpu_supports of GCC 12 and
// clang 14 does not know this feature. Does not check whether the operating system saves wide
// registers: check "avx2" too.
inline bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

// Whether the CPU multiplies tiles of bytes (leaf 7, EDX bits 24 and 25), the operating system
// saves tiles (XCR0 bits 17 and 18), and it permits them to this process, which must request the
// permission because the state of a thread grows by 8 KiB.
// https://docs.kernel.org/arch/x86/xstate.html
inline bool HasAmx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 27 & 1) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx >> 24 & 3) != 3) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> 17 & 3) != 3) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The instruction sets with kernels of their own that this machine can run.
struct X86Features {
  bool avx2 = false;
  bool avx2_vnni = false;
  bool avx512 = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_amx = false;
};
inline X86Features FindX86Features() {
  __builtin_cpu_init();
  X86Features has;
  // Every CPU with AVX2 and FMA converts f16 too.
  has.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  has.avx2_vnni = has.avx2 && HasAvxVnni();
  has.avx512 = has.avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
  has.avx512_vnni = has.avx512 && __builtin_cpu_supports("avx512vnni");
  // Every CPU with bf16 products has VNNI.
  has.avx512_bf16 = has.avx512_vnni && __builtin_cpu_supports("avx512bf16");
  has.avx512_amx = has.avx512_bf16 && HasAmx();
  return has;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_X86_FEATURES_H_
