// The functions of cuBLASLt that are called, as its published binary interface defines them, which
// is the same in versions 12 and 13. They are declared here so that the build does not need the
// toolkit. tests/simt/cublas_abi.cc compares them with NVIDIA's header if it is installed.
#ifndef TANDEM_KERNELS_CUDA_CUBLAS_ENTRIES_H_
#define TANDEM_KERNELS_CUDA_CUBLAS_ENTRIES_H_

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

inline constexpr int kLtSuccess = 0;
inline constexpr int kLtInputsTransposed = 1;  // CUBLAS_OP_T
inline constexpr int kLtFloat = 0, kLtBf16 = 14;
inline constexpr int kLtComputeFloat = 68;
inline constexpr int kLtDescTransposesA = 3;
inline constexpr int kLtPreferWorkspaceBytes = 1;  // uint64_t
inline constexpr int kLtPreferReductions = 3;      // uint32_t: a mask, 0 for none

// Opaque; copied bit for bit.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

using LtObject = void*;  // a handle or a descriptor

// Each member is cuBLASLt's function of the same name.
struct LtEntries {
  size_t (*cublasLtGetVersion)();
  const char* (*cublasLtGetStatusName)(int status);
  int (*cublasLtCreate)(LtObject* handle);
  int (*cublasLtDestroy)(LtObject handle);
  int (*cublasLtMatrixLayoutCreate)(LtObject* layout, int dtype, uint64_t rows, uint64_t cols,
                                    int64_t stride);
  int (*cublasLtMatrixLayoutDestroy)(LtObject layout);
  int (*cublasLtMatmulDescCreate)(LtObject* product, int compute, int dtype);
  int (*cublasLtMatmulDescDestroy)(LtObject product);
  int (*cublasLtMatmulDescSetAttribute)(LtObject product, int attribute, const void* value,
                                        size_t bytes);
  int (*cublasLtMatmulPreferenceCreate)(LtObject* preference);
  int (*cublasLtMatmulPreferenceDestroy)(LtObject preference);
  int (*cublasLtMatmulPreferenceSetAttribute)(LtObject preference, int attribute, const void* value,
                                              size_t bytes);
  int (*cublasLtMatmulAlgoGetHeuristic)(LtObject handle, LtObject product, LtObject a, LtObject b,
                                        LtObject c, LtObject d, LtObject preference, int wanted,
                                        LtHeuristicResult* results, int* found);
  int (*cublasLtMatmul)(LtObject handle, LtObject product, const void* alpha, const void* a,
                        LtObject a_layout, const void* b, LtObject b_layout, const void* beta,
                        const void* c, LtObject c_layout, void* d, LtObject d_layout,
                        const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                        void* stream);
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_ENTRIES_H_
