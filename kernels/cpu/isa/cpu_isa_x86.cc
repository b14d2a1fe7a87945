#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/isa/x86_features.h"

namespace tandem {

const std::vector<IsaKernels>& AllCpuKernels() {
  static const X86Features has = FindX86Features();
  static const CpuKernels amx = WithAmx(kAvx512Bf16Kernels);
  static const std::vector<IsaKernels> all = {{&amx, has.avx512_amx},
                                              {&kAvx512Bf16Kernels, has.avx512_bf16},
                                              {&kAvx512VnniKernels, has.avx512_vnni},
                                              {&kAvx512Kernels, has.avx512},
                                              {&kAvx2VnniKernels, has.avx2_vnni},
                                              {&kAvx2Kernels, has.avx2},
                                              {&kPortableKernels, true}};
  return all;
}

}  // namespace tandem
