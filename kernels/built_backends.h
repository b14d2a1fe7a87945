// The machines that a build has kernels for. A build for one machine (TANDEM_NATIVE) leaves the
// kernels of others out.
#ifndef TANDEM_KERNELS_BUILT_BACKENDS_H_
#define TANDEM_KERNELS_BUILT_BACKENDS_H_

#include <string>
#include <vector>

namespace tandem {

// The instruction sets in this build, best first, whatever this machine can run (cf. CpuIsas).
std::vector<std::string> BuiltCpuIsas();
// "", or how to build the instruction sets that this build leaves out, as the end of an error.
std::string HintAtOtherIsas();
// For people: "avx512_bf16, portable; CUDA: none", or CUDA's architectures, "80, 89, 90a".
std::string BuiltBackends();

}  // namespace tandem

#endif  // TANDEM_KERNELS_BUILT_BACKENDS_H_
