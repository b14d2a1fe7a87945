// The functions of NCCL that are called, as its published binary interface defines them, which is
// the same in all of version 2. tests/simt/nccl_abi.cc compares them with NVIDIA's header if it is
// installed.
#ifndef TANDEM_KERNELS_CUDA_NCCL_ENTRIES_H_
#define TANDEM_KERNELS_CUDA_NCCL_ENTRIES_H_

#include <cstddef>

namespace tandem::cuda {

inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclBytes = 0;  // ncclInt8

struct NcclGroupId {
  char bytes[128];
};
using NcclRank = void*;  // ncclComm_t

// Each member is NCCL's function of the same name.
struct NcclEntries {
  int (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(int result);
  int (*ncclGetUniqueId)(NcclGroupId* group);
  int (*ncclCommInitRank)(NcclRank* made, int world, NcclGroupId group, int rank);
  int (*ncclCommGetAsyncError)(NcclRank rank, int* result);
  int (*ncclCommAbort)(NcclRank rank);
  int (*ncclAllGather)(const void* own, void* all, size_t count, int type, NcclRank rank,
                       void* stream);
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_NCCL_ENTRIES_H_
