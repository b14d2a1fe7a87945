// Replaces cuBLASLt on the simulated device: its entry points, with the sums of the simulated
// tensor cores, and the faults that a test requests (cublas_stand_in.h). It accepts exactly the
// arguments that CublasLt passes.
#include "tests/simt/cublas_stand_in.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/cublas_entries.h"
#include "tests/simt/tensor_core_arithmetic.h"
#include "tests/simt/toolkit_stream.h"

namespace tandem::simt {
namespace {

using cuda::LtAlgorithm;
using cuda::LtObject;

constexpr int kInvalidValue = 7;
constexpr int kNotSupported = 15;
constexpr uint64_t kMark = 0x616C676F;  // marks algorithms

StandInOptions& Options() {
  static StandInOptions options;
  return options;
}
StandInCounts& Counts() {
  static StandInCounts counts;
  return counts;
}

struct Layout {
  int dtype;
  uint64_t rows, cols;
  int64_t stride;
};
struct Product {
  int32_t transposes_a = 0;
};
struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
};

template <typename T>
int Make(LtObject* object, const T& value) {
  *object = new T(value);
  ++Counts().described;
  return cuda::kLtSuccess;
}
template <typename T>
int Destroy(LtObject object) {
  delete static_cast<T*>(object);
  --Counts().described;
  return cuda::kLtSuccess;
}
template <typename T>
int Set(const void* value, size_t bytes, T* field) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(field, value, bytes);
  return cuda::kLtSuccess;
}

// d [outputs, rows] = transpose(a [inputs, outputs]) * b [inputs, rows], all column-major.
struct Sums {
  const uint16_t* a;
  const uint16_t* b;
  float* d;
  Layout of_a, of_b, of_d;
  StandInAlgorithm algorithm;
  TensorCore core;

  std::string Compute() const {
    const std::vector<TensorNumber> w = Numbers(a, of_a), x = Numbers(b, of_b);
    for (uint64_t row = 0; row < of_d.cols; ++row) {
      for (uint64_t output = 0; output < of_d.rows; ++output) {
        const uint64_t inputs = of_a.rows, whole = algorithm.splits_inputs ? inputs / 2 : inputs;
        const TensorNumber* const left = &w[output * inputs];
        const TensorNumber* const right = &x[row * inputs];
        d[row * of_d.stride + output] =
            Chain(left, right, whole) + Chain(left + whole, right + whole, inputs - whole);
      }
    }
    if (algorithm.differs_in_one_bit) {
      float* const last = d + (of_d.cols - 1) * of_d.stride + of_d.rows - 1;
      uint32_t bits;
      std::memcpy(&bits, last, sizeof(bits));
      bits ^= 1;
      std::memcpy(last, &bits, sizeof(bits));
    }
    ++Counts().products;
    if (std::all_of(b, b + of_b.rows * of_b.cols, [&](uint16_t n) { return n == b[0]; })) {
      ++Counts().alike;
    }
    return "";
  }

 private:
  static std::vector<TensorNumber> Numbers(const uint16_t* bits, const Layout& of) {
    std::vector<TensorNumber> numbers;
    for (uint64_t i = 0; i < of.rows * of.cols; ++i)
      numbers.push_back(TensorNumber::OfBf16(bits[i]));
    return numbers;
  }
  // Returns the sum in increasing k, or 0 if count is 0.   count: a multiple of kTensorDepth
  float Chain(const TensorNumber* w, const TensorNumber* x, uint64_t count) const {
    float sum = 0.0f;
    for (uint64_t k = 0; k < count; k += kTensorDepth)
      sum = MultiplyAndAdd(core, w + k, x + k, sum);
    return sum;
  }
};

// Returns whether these are the matrices of a supported product with at least the required number
// of rows.
bool Fits(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  return product.transposes_a == cuda::kLtInputsTransposed && a.dtype == cuda::kLtBf16 &&
         b.dtype == cuda::kLtBf16 && d.dtype == cuda::kLtFloat && a.rows == b.rows &&
         a.cols == d.rows && b.cols == d.cols && a.rows % (2 * kTensorDepth) == 0 &&
         a.stride == static_cast<int64_t>(a.rows) && b.stride == static_cast<int64_t>(b.rows) &&
         d.stride == static_cast<int64_t>(d.rows);
}

template <typename T>
const T& As(LtObject object) {
  return *static_cast<const T*>(object);
}

}  // namespace
}  // namespace tandem::simt

using tandem::cuda::LtAlgorithm;
using tandem::cuda::LtHeuristicResult;
using tandem::cuda::LtObject;
namespace simt = tandem::simt;
namespace cuda = tandem::cuda;

extern "C" {

void TandemSetStandIn(const simt::StandInOptions& options) { simt::Options() = options; }
simt::StandInCounts TandemStandInCounts() { return simt::Counts(); }

size_t cublasLtGetVersion() { return simt::Options().version; }
const char* cublasLtGetStatusName(int status) {
  return status == simt::kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OTHER";
}
int cublasLtCreate(LtObject* handle) {
  if (simt::Options().create_status != 0) return simt::Options().create_status;
  ++simt::Counts().handles;
  *handle = &simt::Counts();
  return cuda::kLtSuccess;
}
int cublasLtDestroy(LtObject) {
  --simt::Counts().handles;
  return cuda::kLtSuccess;
}
int cublasLtMatrixLayoutCreate(LtObject* layout, int dtype, uint64_t rows, uint64_t cols,
                               int64_t stride) {
  return simt::Make(layout, simt::Layout{dtype, rows, cols, stride});
}
int cublasLtMatrixLayoutDestroy(LtObject layout) { return simt::Destroy<simt::Layout>(layout); }
int cublasLtMatmulDescCreate(LtObject* product, int compute, int dtype) {
  if (compute != cuda::kLtComputeFloat || dtype != cuda::kLtFloat) return simt::kNotSupported;
  return simt::Make(product, simt::Product{});
}
int cublasLtMatmulDescDestroy(LtObject product) { return simt::Destroy<simt::Product>(product); }
int cublasLtMatmulDescSetAttribute(LtObject product, int attribute, const void* value,
                                   size_t bytes) {
  if (attribute != cuda::kLtDescTransposesA) return simt::kInvalidValue;
  return simt::Set(value, bytes, &static_cast<simt::Product*>(product)->transposes_a);
}
int cublasLtMatmulPreferenceCreate(LtObject* preference) {
  return simt::Make(preference, simt::Preference{});
}
int cublasLtMatmulPreferenceDestroy(LtObject preference) {
  return simt::Destroy<simt::Preference>(preference);
}
int cublasLtMatmulPreferenceSetAttribute(LtObject preference, int attribute, const void* value,
                                         size_t bytes) {
  auto* const wanted = static_cast<simt::Preference*>(preference);
  if (attribute == cuda::kLtPreferWorkspaceBytes) {
    return simt::Set(value, bytes, &wanted->workspace_bytes);
  }
  if (attribute != cuda::kLtPreferReductions) return simt::kInvalidValue;
  return simt::Set(value, bytes, &wanted->reductions);
}
// Also returns algorithms that are too large for the workspace: the caller must refuse them.
int cublasLtMatmulAlgoGetHeuristic(LtObject, LtObject product, LtObject a, LtObject b, LtObject,
                                   LtObject d, LtObject preference, int wanted,
                                   LtHeuristicResult* results, int* found) {
  const simt::StandInOptions& options = simt::Options();
  if (options.heuristic_status != 0) return options.heuristic_status;
  if (!simt::Fits(simt::As<simt::Product>(product), simt::As<simt::Layout>(a),
                  simt::As<simt::Layout>(b), simt::As<simt::Layout>(d))) {
    return simt::kNotSupported;
  }
  *found = 0;
  for (size_t i = 0; i < options.algorithms.size() && *found < wanted; ++i) {
    const simt::StandInAlgorithm& algorithm = options.algorithms[i];
    const bool reduces = simt::As<simt::Preference>(preference).reductions != 0;
    if (algorithm.splits_inputs && !reduces) continue;
    if (simt::As<simt::Layout>(d).cols < static_cast<uint64_t>(options.min_rows)) continue;
    results[(*found)++] = {.algorithm = {{simt::kMark, i}},
                           .workspace_bytes = algorithm.workspace_bytes,
                           .state = algorithm.state,
                           .waves = 1.0f,
                           .reserved = {}};
  }
  return cuda::kLtSuccess;
}
int cublasLtMatmul(LtObject handle, LtObject product, const void* alpha, const void* a,
                   LtObject a_layout, const void* b, LtObject b_layout, const void* beta,
                   const void* c, LtObject, void* d, LtObject d_layout,
                   const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                   void* stream) {
  const auto& of_a = simt::As<simt::Layout>(a_layout);
  const auto& of_b = simt::As<simt::Layout>(b_layout);
  const auto& of_d = simt::As<simt::Layout>(d_layout);
  const bool is_plain =
      *static_cast<const float*>(alpha) == 1.0f && *static_cast<const float*>(beta) == 0.0f;
  if (handle != &simt::Counts() || stream == nullptr || c != d || !is_plain ||
      algorithm->data[0] != simt::kMark ||
      !simt::Fits(simt::As<simt::Product>(product), of_a, of_b, of_d)) {
    return simt::kInvalidValue;
  }
  const simt::StandInAlgorithm& chosen = simt::Options().algorithms.at(algorithm->data[1]);
  if (chosen.status != 0) return chosen.status;
  if (chosen.workspace_bytes > workspace_bytes || workspace == nullptr) return simt::kInvalidValue;
  const auto& to = *static_cast<simt::ToolkitStream*>(stream);
  const simt::Sums sums = {static_cast<const uint16_t*>(a),
                           static_cast<const uint16_t*>(b),
                           static_cast<float*>(d),
                           of_a,
                           of_b,
                           of_d,
                           chosen,
                           to.core};
  return to.enqueue([sums] { return sums.Compute(); });
}

}  // extern "C"
