#include "kernels/cuda/cublas_lt.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/loaded_library.h"

namespace tandem::cuda {
namespace {

constexpr int kMaxAlgorithms = 8;  // requested from the heuristic, which orders them by speed

absl::Status FindEntries(const LoadedLibrary& library, LtEntries* lt) {
  absl::Status status;
  const auto find = [&](const char* name, auto* entry) { library.Find(name, entry, &status); };
  find("cublasLtGetVersion", &lt->cublasLtGetVersion);
  find("cublasLtGetStatusName", &lt->cublasLtGetStatusName);
  find("cublasLtCreate", &lt->cublasLtCreate);
  find("cublasLtDestroy", &lt->cublasLtDestroy);
  find("cublasLtMatrixLayoutCreate", &lt->cublasLtMatrixLayoutCreate);
  find("cublasLtMatrixLayoutDestroy", &lt->cublasLtMatrixLayoutDestroy);
  find("cublasLtMatmulDescCreate", &lt->cublasLtMatmulDescCreate);
  find("cublasLtMatmulDescDestroy", &lt->cublasLtMatmulDescDestroy);
  find("cublasLtMatmulDescSetAttribute", &lt->cublasLtMatmulDescSetAttribute);
  find("cublasLtMatmulPreferenceCreate", &lt->cublasLtMatmulPreferenceCreate);
  find("cublasLtMatmulPreferenceDestroy", &lt->cublasLtMatmulPreferenceDestroy);
  find("cublasLtMatmulPreferenceSetAttribute", &lt->cublasLtMatmulPreferenceSetAttribute);
  find("cublasLtMatmulAlgoGetHeuristic", &lt->cublasLtMatmulAlgoGetHeuristic);
  find("cublasLtMatmul", &lt->cublasLtMatmul);
  return status;
}

class LoadedCublasLt final : public CublasLt {
 public:
  LoadedCublasLt(const LtEntries& lt, LtObject handle, std::string version)
      : lt_(lt), handle_(handle), version_(std::move(version)) {}
  ~LoadedCublasLt() override { lt_.cublasLtDestroy(handle_); }

  const std::string& version() const override { return version_; }

  absl::StatusOr<std::vector<LtAlgorithm>> AlgorithmsFor(const LtShape& shape,
                                                         size_t workspace_bytes,
                                                         bool in_any_order) override {
    std::vector<LtAlgorithm> algorithms;
    RETURN_IF_ERROR(Describe(shape, [&](const Described& of) -> absl::Status {
      LtObject preference = nullptr;
      RETURN_IF_ERROR(Check(lt_.cublasLtMatmulPreferenceCreate(&preference)));
      const absl::Cleanup end = [&] { lt_.cublasLtMatmulPreferenceDestroy(preference); };
      const uint64_t bytes = workspace_bytes;
      const uint32_t no_reductions = 0;
      RETURN_IF_ERROR(Check(lt_.cublasLtMatmulPreferenceSetAttribute(
          preference, kLtPreferWorkspaceBytes, &bytes, sizeof(bytes))));
      if (!in_any_order) {
        RETURN_IF_ERROR(Check(lt_.cublasLtMatmulPreferenceSetAttribute(
            preference, kLtPreferReductions, &no_reductions, sizeof(no_reductions))));
      }
      LtHeuristicResult results[kMaxAlgorithms] = {};
      int found = 0;
      RETURN_IF_ERROR(Check(lt_.cublasLtMatmulAlgoGetHeuristic(handle_, of.product, of.weight, of.x,
                                                               of.sums, of.sums, preference,
                                                               kMaxAlgorithms, results, &found)));
      for (int i = 0; i < found; ++i) {
        if (results[i].state == kLtSuccess && results[i].workspace_bytes <= workspace_bytes) {
          algorithms.push_back(results[i].algorithm);
        }
      }
      return absl::OkStatus();
    }));
    return algorithms;
  }

  absl::Status Multiply(const LtShape& shape, const LtAlgorithm& algorithm, const void* x,
                        const void* weight, float* sums, void* workspace, size_t workspace_bytes,
                        void* stream) override {
    return Describe(shape, [&](const Described& of) {
      const float one = 1.0f, zero = 0.0f;
      return Check(lt_.cublasLtMatmul(handle_, of.product, &one, weight, of.weight, x, of.x, &zero,
                                      sums, of.sums, sums, of.sums, &algorithm, workspace,
                                      workspace_bytes, stream));
    });
  }

 private:
  struct Described {
    LtObject product = nullptr, weight = nullptr, x = nullptr, sums = nullptr;
  };

  absl::Status Check(int status) const {
    if (status == kLtSuccess) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cuBLASLt: ", lt_.cublasLtGetStatusName(status)));
  }

  // cuBLASLt's matrices are column-major, so a row-major one is described as its transpose.
  template <typename Use>
  absl::Status Describe(const LtShape& shape, const Use& use) const {
    Described of;
    const absl::Cleanup end = [&] {
      if (of.product != nullptr) lt_.cublasLtMatmulDescDestroy(of.product);
      for (LtObject layout : {of.weight, of.x, of.sums}) {
        if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
      }
    };
    const auto layout = [&](LtObject* of_matrix, int dtype, int rows, int cols) {
      return Check(lt_.cublasLtMatrixLayoutCreate(of_matrix, dtype, cols, rows, cols));
    };
    const int32_t transposed = kLtInputsTransposed;
    RETURN_IF_ERROR(Check(lt_.cublasLtMatmulDescCreate(&of.product, kLtComputeFloat, kLtFloat)));
    RETURN_IF_ERROR(Check(lt_.cublasLtMatmulDescSetAttribute(of.product, kLtDescTransposesA,
                                                             &transposed, sizeof(transposed))));
    RETURN_IF_ERROR(layout(&of.weight, kLtBf16, shape.outputs, shape.inputs));
    RETURN_IF_ERROR(layout(&of.x, kLtBf16, shape.rows, shape.inputs));
    RETURN_IF_ERROR(layout(&of.sums, kLtFloat, shape.rows, shape.outputs));
    return use(of);
  }

  const LtEntries lt_;
  LtObject handle_;
  const std::string version_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open() {
  ASSIGN_OR_RETURN(
      const LoadedLibrary library,
      LoadedLibrary::Open("TANDEM_CUBLAS_LT", {"libcublasLt.so.13", "libcublasLt.so.12"}));
  LtEntries lt = {};
  RETURN_IF_ERROR(FindEntries(library, &lt));
  // 130100 is 13.1.0. Versions before 12 are numbered in another way, below 120000.
  const size_t version = lt.cublasLtGetVersion();
  const std::string text =
      absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  if (version / 10000 != 12 && version / 10000 != 13) {
    return absl::UnavailableError(absl::StrCat("version ", text, " is neither 12 nor 13"));
  }
  LtObject handle = nullptr;
  if (const int status = lt.cublasLtCreate(&handle); status != kLtSuccess) {
    return absl::UnavailableError(
        absl::StrCat("cublasLtCreate: ", lt.cublasLtGetStatusName(status)));
  }
  return std::make_unique<LoadedCublasLt>(lt, handle, text);
}

}  // namespace tandem::cuda
