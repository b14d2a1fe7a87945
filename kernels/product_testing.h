// Shared by the tests of products on all devices, with weights of floats and of blocks: the
// products as matrices, and checks that every device must pass.
#ifndef TANDEM_KERNELS_PRODUCT_TESTING_H_
#define TANDEM_KERNELS_PRODUCT_TESTING_H_

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"

namespace tandem {

inline PackedWeight PackParts(Backend& backend, absl::Span<const WeightPart> parts,
                              PartOrder order) {
  auto packed = backend.Pack(parts, order);
  TANDEM_CHECK(packed.ok());
  return *std::move(packed);
}

// A result before its product, which must overwrite all of it.
inline TestMatrix Unwritten(int rows, int cols) {
  TestMatrix out(rows, cols);
  for (int r = 0; r < rows; ++r) std::fill_n(out.row(r), cols, -77.5f);
  return out;
}

inline TestMatrix Multiply(Backend& backend, const TestMatrix& x, const PackedWeight& weight) {
  UploadedMatrix in(backend, x), out(backend, Unwritten(x.rows(), weight.outputs));
  backend.MatMul(in.view(), weight, out.view());
  return out.Get();
}
inline TestMatrix MultiplyAdd(Backend& backend, const TestMatrix& x, const PackedWeight& weight,
                              const TestMatrix& sum) {
  UploadedMatrix in(backend, x), out(backend, sum);
  backend.MatMulAdd(in.view(), weight, out.view());
  return out.Get();
}
inline TestMatrix MultiplyGated(Backend& backend, const TestMatrix& x, const PackedWeight& weight,
                                Activation activation = Activation::kSilu) {
  UploadedMatrix in(backend, x), out(backend, Unwritten(x.rows(), weight.outputs / 2));
  backend.MatMulGated(in.view(), weight, activation, out.view());
  return out.Get();
}
// The product of normalised rows, which is gated if the weight is packed for that.
inline constexpr float kNormEpsilon = 1e-5f;
inline TestMatrix MultiplyNormed(Backend& backend, const TestMatrix& x, const TestMatrix& norm,
                                 const PackedWeight& weight,
                                 Activation activation = Activation::kSilu) {
  const bool is_gated = weight.order == PartOrder::kGateAndUp;
  UploadedMatrix in(backend, x), normed(backend, TestMatrix(x.rows(), x.cols()));
  UploadedMatrix norm_weight(backend, norm);
  UploadedMatrix out(backend, Unwritten(x.rows(), weight.outputs / (is_gated ? 2 : 1)));
  const NormedRows rows{.x = in.view(),
                        .weight = norm_weight.data(),
                        .epsilon = kNormEpsilon,
                        .normed = normed.view()};
  if (is_gated) {
    backend.MatMulGated(rows, weight, activation, out.view());
  } else {
    backend.MatMul(rows, weight, out.view());
  }
  return out.Get();
}

// Expects the products of x with `weight`, plus `bias`, within `relative` times the sum of the
// magnitudes of their terms.
inline void ExpectNearExactProduct(const TestMatrix& out, const TestMatrix& x,
                                   const TestWeight& weight, const std::vector<float>& bias,
                                   bool rounds_to_bf16, double relative) {
  for (int r = 0; r < x.rows(); ++r) {
    for (int c = 0; c < out.cols(); ++c) {
      const ExactDot dot =
          DotInDouble(x.row(r), weight.values().row(c), x.cols(), rounds_to_bf16, bias[c]);
      ASSERT_NEAR(out.at(r, c), dot.value, relative * dot.magnitude)
          << NameOf(weight.view().dtype) << " K " << x.cols() << " N " << out.cols() << " at " << r
          << ", " << c << " of " << x.rows();
    }
  }
}

// Expects exact products of ones. Sums of up to 300 ones are exact in every format, so a dropped or
// doubled input is detected.
inline void ExpectCountsEveryInput(Backend& backend, DType dtype, int inputs, int outputs,
                                   const std::vector<int>& row_counts) {
  TestMatrix ones(outputs, inputs);
  for (int r = 0; r < outputs; ++r) std::fill_n(ones.row(r), inputs, 1.0f);
  const PackedWeight packed = PackOne(backend, TestWeight(ones, dtype));
  for (const int rows : row_counts) {
    const TestMatrix out = Multiply(backend, ones.Rows(Iota(rows)), packed);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < outputs; ++c) ASSERT_EQ(out.at(r, c), inputs) << NameOf(dtype);
    }
  }
}

// Expects that NaN and infinity in rows of x, which has at least 9, change no other row. In a block
// format, infinity becomes NaN.
inline void ExpectNonFiniteStaysInItsRow(Backend& backend, const TestMatrix& x,
                                         const PackedWeight& packed) {
  const TestMatrix clean = Multiply(backend, x, packed);
  TestMatrix spoilt = x;
  spoilt.at(4, 17) = NAN;
  spoilt.at(7, x.cols() - 1) = -INFINITY;
  const TestMatrix out = Multiply(backend, spoilt, packed);
  for (int r = 0; r < x.rows(); ++r) {
    for (int c = 0; c < out.cols(); ++c) {
      if (r == 4 || (r == 7 && IsBlocks(packed.dtype))) {
        ASSERT_TRUE(std::isnan(out.at(r, c))) << NameOf(packed.dtype) << " row " << r;
      } else if (r == 7) {
        ASSERT_FALSE(std::isfinite(out.at(r, c))) << NameOf(packed.dtype) << " row " << r;
      } else {
        ASSERT_EQ(out.at(r, c), clean.at(r, c)) << NameOf(packed.dtype) << " row " << r;
      }
    }
  }
}

// Expects that a product is added to a sum with one rounding.
inline void ExpectAdds(Backend& backend, const TestMatrix& x, const PackedWeight& packed,
                       std::mt19937& random) {
  const TestMatrix sum = TestMatrix::Random(x.rows(), packed.outputs, random);
  const TestMatrix product = Multiply(backend, x, packed);
  const TestMatrix out = MultiplyAdd(backend, x, packed, sum);
  for (int r = 0; r < x.rows(); ++r) {
    for (int c = 0; c < out.cols(); ++c) {
      ASSERT_EQ(out.at(r, c), sum.at(r, c) + product.at(r, c)) << NameOf(packed.dtype);
    }
  }
}

// Expects that a product with `packed`, which consists of `parts`, gives the outputs of the parts
// next to each other.
inline void ExpectAdjacentParts(Backend& backend, const TestMatrix& x, const PackedWeight& packed,
                                const std::vector<WeightPart>& parts) {
  const TestMatrix out = Multiply(backend, x, packed);
  int first = 0;
  for (const WeightPart& part : parts) {
    const PackedWeight alone = PackParts(backend, {part}, PartOrder::kConcatenated);
    const TestMatrix expected = Multiply(backend, x, alone);
    for (int r = 0; r < x.rows(); ++r) {
      for (int c = 0; c < expected.cols(); ++c) {
        ASSERT_EQ(out.at(r, first + c), expected.at(r, c)) << NameOf(packed.dtype);
      }
    }
    first += expected.cols();
  }
  EXPECT_EQ(first, packed.outputs);
}

inline double SwiGlu(double gate, double up) { return gate / (1.0 + std::exp(-gate)) * up; }

// Expects activation(gate) * up, from the rounded gate and up: the error of exp is 2 units in the
// last place, at most 2^-22 of it, and three more operations round by 2^-24 each. If exp is
// infinite, for arguments below about -88, the result is within `underflow` * (1 + |up|) of zero.
inline void ExpectGatedProduct(Backend& backend, const TestMatrix& x, const WeightPart& gate,
                               const WeightPart& up, double underflow) {
  const auto near_zero = [&](double argument, double up_value) {
    return argument < -80.0 ? underflow * (1 + std::abs(up_value)) : 0.0;
  };
  const PackedWeight packed = PackParts(backend, {gate, up}, PartOrder::kGateAndUp);
  EXPECT_EQ(packed.outputs, 2 * gate.matrix.rows);
  const TestMatrix out = MultiplyGated(backend, x, packed);
  const TestMatrix gelu = MultiplyGated(backend, x, packed, Activation::kGeluTanh);
  const TestMatrix gates =
      Multiply(backend, x, PackParts(backend, {gate}, PartOrder::kConcatenated));
  const TestMatrix ups = Multiply(backend, x, PackParts(backend, {up}, PartOrder::kConcatenated));
  for (int r = 0; r < x.rows(); ++r) {
    for (int c = 0; c < out.cols(); ++c) {
      const double g = gates.at(r, c), u = ups.at(r, c);
      const double expected = SwiGlu(g, u);
      ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 0x1p-21 + near_zero(g, u))
          << NameOf(packed.dtype) << " gate " << g << " at " << r << ", " << c;
      // Five roundings of the argument f of exp change the result by 5 * 2^-24 * |f|, relatively.
      const double f = std::sqrt(8 / M_PI) * (g + 0.044715 * g * g * g);
      const double other = g / (1.0 + std::exp(-f)) * u;
      ASSERT_NEAR(gelu.at(r, c), other,
                  std::abs(other) * (0x1p-21 + 5 * 0x1p-24 * std::abs(f)) + near_zero(f, u))
          << NameOf(packed.dtype) << " gate " << g << " at " << r << ", " << c;
    }
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_PRODUCT_TESTING_H_
