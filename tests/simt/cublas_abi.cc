// Compares kernels/cuda/cublas_entries.h with NVIDIA's header: numbers, structures, and that every
// function's arguments and result have the same size and kind. It only has to compile.
#include <cublasLt.h>

#include <cstddef>

#include "kernels/cuda/cublas_entries.h"
#include "tests/simt/called_alike.h"

namespace tandem::cuda {
namespace {

#define TANDEM_CALLED_ALIKE(name)                                                   \
  static_assert(IsCalledAlike<decltype(LtEntries::name), decltype(&::name)>::value, \
                #name " has another signature")

TANDEM_CALLED_ALIKE(cublasLtGetVersion);
TANDEM_CALLED_ALIKE(cublasLtGetStatusName);
TANDEM_CALLED_ALIKE(cublasLtCreate);
TANDEM_CALLED_ALIKE(cublasLtDestroy);
TANDEM_CALLED_ALIKE(cublasLtMatrixLayoutCreate);
TANDEM_CALLED_ALIKE(cublasLtMatrixLayoutDestroy);
TANDEM_CALLED_ALIKE(cublasLtMatmulDescCreate);
TANDEM_CALLED_ALIKE(cublasLtMatmulDescDestroy);
TANDEM_CALLED_ALIKE(cublasLtMatmulDescSetAttribute);
TANDEM_CALLED_ALIKE(cublasLtMatmulPreferenceCreate);
TANDEM_CALLED_ALIKE(cublasLtMatmulPreferenceDestroy);
TANDEM_CALLED_ALIKE(cublasLtMatmulPreferenceSetAttribute);
TANDEM_CALLED_ALIKE(cublasLtMatmulAlgoGetHeuristic);
TANDEM_CALLED_ALIKE(cublasLtMatmul);
#undef TANDEM_CALLED_ALIKE

// A function with one argument fewer, or with another kind of argument, is seen.
static_assert(!IsCalledAlike<int (*)(void*), decltype(&::cublasLtMatmul)>::value);
static_assert(!IsCalledAlike<int (*)(int), decltype(&::cublasLtDestroy)>::value);

static_assert(kLtSuccess == CUBLAS_STATUS_SUCCESS && kLtInputsTransposed == CUBLAS_OP_T &&
              kLtFloat == CUDA_R_32F && kLtBf16 == CUDA_R_16BF &&
              kLtComputeFloat == CUBLAS_COMPUTE_32F &&
              kLtDescTransposesA == CUBLASLT_MATMUL_DESC_TRANSA &&
              kLtPreferWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              kLtPreferReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              CUBLASLT_REDUCTION_SCHEME_NONE == 0);
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              alignof(LtAlgorithm) == alignof(cublasLtMatmulAlgo_t));
using TheirResult = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(LtHeuristicResult) == sizeof(TheirResult) &&
              offsetof(LtHeuristicResult, workspace_bytes) ==
                  offsetof(TheirResult, workspaceSize) &&
              offsetof(LtHeuristicResult, state) == offsetof(TheirResult, state) &&
              offsetof(LtHeuristicResult, waves) == offsetof(TheirResult, wavesCount));

}  // namespace
}  // namespace tandem::cuda
