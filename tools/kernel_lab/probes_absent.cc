// In place of probes.cu on the host twin.
#include "tools/kernel_lab/bits.h"
#include "tools/kernel_lab/probes.h"

namespace tandem::kernel_lab {

namespace {
constexpr cuda::Error kNoDevice = 100;
}  // namespace

bool HasProbes() { return false; }

cuda::Error Launch(const WideChainTask& /*task*/, cuda::Stream /*stream*/) { return kNoDevice; }
cuda::Error Launch(const ProbeTask& /*task*/, cuda::Stream /*stream*/) { return kNoDevice; }
cuda::Error LaunchNothing(bool /*early*/, cuda::Stream /*stream*/) { return kNoDevice; }

}  // namespace tandem::kernel_lab
