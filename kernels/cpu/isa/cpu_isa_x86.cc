#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/isa/x86_features.h"

namespace tandem {

std::vector<const CpuKernels*> SupportedCpuKernels() {
  __builtin_cpu_init();
  std::vector<const CpuKernels*> kernels;
  // Every CPU with AVX2 and FMA converts f16 too.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool avx512_vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  // Every CPU with bf16 products has VNNI.
  const bool avx512_bf16 = avx512_vnni && __builtin_cpu_supports("avx512bf16");
  if (avx512_bf16 && HasAmx()) {
    static const CpuKernels with_amx = WithAmx(kAvx512Bf16Kernels);
    kernels.push_back(&with_amx);
  }
  if (avx512_bf16) kernels.push_back(&kAvx512Bf16Kernels);
  if (avx512_vnni) kernels.push_back(&kAvx512VnniKernels);
  if (avx512) kernels.push_back(&kAvx512Kernels);
  if (avx2 && HasAvxVnni()) kernels.push_back(&kAvx2VnniKernels);
  if (avx2) kernels.push_back(&kAvx2Kernels);
  kernels.push_back(&kPortableKernels);
  return kernels;
}

}  // namespace tandem
