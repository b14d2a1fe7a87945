// Options of the stand-in for NCCL, for tests that load it.
#ifndef TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_
#define TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_

namespace tandem::simt {

// Each result, unless it is NCCL's success, is returned by the call named next to it.
struct NcclStandInOptions {
  int version = 22809;
  int group_result = 0;   // ncclGetUniqueId
  int join_result = 0;    // ncclCommInitRank
  int gather_result = 0;  // ncclAllGather
  int async_result = 0;   // ncclCommGetAsyncError
};

// Counts of this process.
struct NcclStandInCounts {
  int joined = 0;  // ranks that have not left
  int gathered = 0;
  int repeated = 0;  // gatherings that recordings ran
};

// Types of the library's symbols.
using SetNcclStandInOptions = void (*)(const NcclStandInOptions&);  // TandemSetNcclStandIn
using GetNcclStandInCounts = NcclStandInCounts (*)();               // TandemNcclStandInCounts

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_
