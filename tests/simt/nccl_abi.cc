// Compares kernels/cuda/nccl_entries.h with NVIDIA's header, like cublas_abi.cc. It only has to
// compile.
#include <nccl.h>

#include "kernels/cuda/nccl_entries.h"
#include "tests/simt/called_alike.h"

namespace tandem::cuda {
namespace {

#define TANDEM_CALLED_ALIKE(name)                                                     \
  static_assert(IsCalledAlike<decltype(NcclEntries::name), decltype(&::name)>::value, \
                #name " has another signature")

TANDEM_CALLED_ALIKE(ncclGetVersion);
TANDEM_CALLED_ALIKE(ncclGetErrorString);
TANDEM_CALLED_ALIKE(ncclGetUniqueId);
TANDEM_CALLED_ALIKE(ncclCommInitRank);
TANDEM_CALLED_ALIKE(ncclCommGetAsyncError);
TANDEM_CALLED_ALIKE(ncclCommAbort);
TANDEM_CALLED_ALIKE(ncclAllGather);
#undef TANDEM_CALLED_ALIKE

// A group id of another size is seen.
struct Smaller {
  char bytes[64];
};
static_assert(
    !IsCalledAlike<int (*)(NcclRank*, int, Smaller, int), decltype(&::ncclCommInitRank)>::value);

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress &&
              kNcclBytes == ncclInt8);

}  // namespace
}  // namespace tandem::cuda
