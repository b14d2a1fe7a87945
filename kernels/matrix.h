#ifndef TANDEM_KERNELS_MATRIX_H_
#define TANDEM_KERNELS_MATRIX_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// The type of a matrix's elements. kInt8 is for KV caches only, which store scales separately.
// From kQ8_0 on, elements come in blocks that contain their scales (blocks.h).
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kInt8,
  // NOLINTBEGIN(readability-identifier-naming): the formats' own names
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  // NOLINTEND(readability-identifier-naming)
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
};

inline constexpr bool IsBlocks(DType dtype) { return dtype >= DType::kQ8_0; }
// Bytes of an element; 0 for block formats.
inline constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kInt8:
      return 1;
    default:
      return 0;
  }
}
inline constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kQ8_0:
      return "q8_0";
    case DType::kQ4_0:
      return "q4_0";
    case DType::kQ4_1:
      return "q4_1";
    case DType::kQ5_0:
      return "q5_0";
    case DType::kQ5_1:
      return "q5_1";
    case DType::kQ2K:
      return "q2_k";
    case DType::kQ3K:
      return "q3_k";
    case DType::kQ4K:
      return "q4_k";
    case DType::kQ5K:
      return "q5_k";
    case DType::kQ6K:
      return "q6_k";
    case DType::kIq4Nl:
      return "iq4_nl";
    case DType::kIq4Xs:
      return "iq4_xs";
  }
  return "";
}

// The last step of a product, from its sums to the stored outputs.
enum class Epilogue {
  kStore,   // out = sums + bias
  kAdd,     // out = out + (sums + bias)
  kSwiGlu,  // out = silu(gate) * up; the weight is packed as PartOrder::kGateAndUp
  kGeGlu,   // out = gelu(gate) * up; the weight is packed as PartOrder::kGateAndUp
};
inline constexpr bool IsGated(Epilogue end) {
  return end == Epilogue::kSwiGlu || end == Epilogue::kGeGlu;
}

// The activation of a feed-forward layer's gate g: g / (1 + exp(-f(g))).
enum class Activation {
  kSilu,      // f(g) = g
  kGeluTanh,  // f(g) = sqrt(8 / pi) * (g + 0.044715 g^3): GELU's approximation with tanh
};
inline constexpr Epilogue GatedEnd(Activation activation) {
  return activation == Activation::kSilu ? Epilogue::kSwiGlu : Epilogue::kGeGlu;
}

// A non-owning view of a row-major matrix in a backend's memory. Trivially copyable: pass it by
// value.
//
// Every tensor is a matrix (activations [tokens, dim], weights [out, in], logits and probabilities
// [rows, vocab]), except the KV cache, which is a PagedKvView.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;  // elements from one row to the next, at least cols
};

struct ConstMatrixView {
  ConstMatrixView() = default;
  ConstMatrixView(const void* data, DType dtype, int rows, int cols, int64_t stride)
      : data(data), dtype(dtype), rows(rows), cols(cols), stride(stride) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a view of T is one of const T.
  ConstMatrixView(MatrixView m)
      : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), stride(m.stride) {}

  const void* data = nullptr;
  DType dtype = DType::kF32;
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATRIX_H_
