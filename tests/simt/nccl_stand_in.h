// Options of the stand-in for NCCL, for tests that load it.
#ifndef TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_
#define TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_

namespace tandem::simt {

// Results that are not NCCL's success are what the call of that name returns.
struct NcclStandInOptions {
  int version = 22809;
  int group_result = 0;   // ncclGetUniqueId
  int join_result = 0;    // ncclCommInitRank
  int gather_result = 0;  // ncclAllGather
  int async_result = 0;   // ncclCommGetAsyncError
};

// In this process.
struct NcclStandInCounts {
  int joined = 0;  // that have not left
  int gathered = 0;
  int repeated = 0;  // of those, by recordings
};

// Symbols of the library.
using SetNcclStandInOptions = void (*)(const NcclStandInOptions&);  // TandemSetNcclStandIn
using GetNcclStandInCounts = NcclStandInCounts (*)();               // TandemNcclStandInCounts

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_NCCL_STAND_IN_H_
