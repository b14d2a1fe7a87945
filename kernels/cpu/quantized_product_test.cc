// Products with quantised weights: as defined, near the exact product, and the same bits for a row
// whatever surrounds it.
#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"
#include "kernels/quantize.h"

namespace tandem {
namespace {

constexpr int kQuantizedInputs[] = {1, 3, 4, 127, 128, 129, 300, 704};
constexpr int kQuantizedOutputs[] = {1, 63, 64, 65, 293};

struct QuantizedKind {
  DType dtype;
  Quantization quantization;
};
constexpr QuantizedKind kQuantizedKinds[] = {{DType::kInt8, Quantization::kInt8},
                                             {DType::kInt4, Quantization::kInt4}};

// Rows of weights or activations as whole numbers and their scales.
struct Quantized {
  std::vector<int> values;    // [cols]
  std::vector<float> scales;  // [groups]
};

Quantized QuantizeWeights(const float* row, int cols, DType dtype) {
  Quantized out;
  for (int first = 0; first < cols; first += kQuantizationGroup) {
    const int count = std::min(kQuantizationGroup, cols - first);
    std::vector<std::byte> bytes(QuantizedBytes(dtype, count));
    out.scales.push_back(0.0f);
    QuantizeGroup(row + first, count, dtype, bytes.data(), &out.scales.back());
    std::vector<float> whole(count);
    DequantizeGroup(bytes.data(), count, dtype, 1.0f, whole.data());
    out.values.insert(out.values.end(), whole.begin(), whole.end());
  }
  return out;
}

Quantized QuantizeActivations(const float* row, int cols) {
  Quantized out;
  for (int first = 0; first < cols; first += kQuantizationGroup) {
    const int count = std::min(kQuantizationGroup, cols - first);
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(row[first + i]));
    const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
    out.scales.push_back(largest / 127.0f);
    for (int i = 0; i < count; ++i) {
      out.values.push_back(static_cast<int>(std::nearbyint(row[first + i] * inverse)));
    }
  }
  return out;
}

// The chain over groups that docs/numerics.md defines.
float DefinedProduct(const Quantized& weights, const Quantized& x, bool fused) {
  const int cols = static_cast<int>(weights.values.size());
  float sum = 0.0f;
  for (size_t group = 0; group < weights.scales.size(); ++group) {
    const int first = static_cast<int>(group) * kQuantizationGroup;
    int whole = 0;
    for (int k = first; k < std::min(cols, first + kQuantizationGroup); ++k) {
      whole += weights.values[k] * x.values[k];
    }
    const float scale = weights.scales[group] * x.scales[group];
    const float product = static_cast<float>(whole) * scale;
    sum = fused ? std::fma(static_cast<float>(whole), scale, sum) : product + sum;
  }
  return sum;
}

PackedWeight PackAs(Backend& backend, const TestWeight& weight, Quantization quantization,
                    const float* bias = nullptr) {
  auto packed = backend.Pack({{weight.view(), bias}}, PartOrder::kConcatenated, quantization);
  TANDEM_CHECK(packed.ok());
  return *std::move(packed);
}

TEST(QuantizedProduct, IsWhatIsDefinedToTheBit) {
  std::mt19937 random(1);
  for (const QuantizedKind kind : kQuantizedKinds) {
    for (const DType source : kAllDTypes) {
      for (const int inputs : kQuantizedInputs) {
        const int outputs = kQuantizedOutputs[random() % std::size(kQuantizedOutputs)];
        const TestWeight weight(TestMatrix::Random(outputs, inputs, random), source);
        const TestMatrix x = TestMatrix::Random(7, inputs, random);
        for (TestBackend& test : AllBackends()) {
          const PackedWeight packed = PackAs(*test.backend, weight, kind.quantization);
          EXPECT_EQ(packed.dtype, kind.dtype);
          TestMatrix out(7, outputs);
          test.backend->MatMul(x.view(), packed, out.view());
          const bool fused = test.label.find("portable") == std::string::npos;
          for (int c = 0; c < outputs; ++c) {
            const Quantized w = QuantizeWeights(weight.values().row(c), inputs, kind.dtype);
            for (int r = 0; r < x.rows(); ++r) {
              ASSERT_EQ(out.at(r, c),
                        DefinedProduct(w, QuantizeActivations(x.row(r), inputs), fused))
                  << test.label << " " << NameOf(kind.dtype) << " K " << inputs << " at " << r
                  << ", " << c;
            }
          }
        }
      }
    }
  }
}

// An activation is off by at most half its scale, a weight by half of its own (int4 above 7 times
// it by the whole); sums of groups round once per group.
TEST(QuantizedProduct, IsNearTheExactOne) {
  std::mt19937 random(2);
  TestBackend test = std::move(AllBackends().front());
  for (const QuantizedKind kind : kQuantizedKinds) {
    const TestWeight weight(TestMatrix::Random(200, 1000, random), DType::kBF16);
    const TestMatrix x = TestMatrix::Random(3, 1000, random);
    TestMatrix out(3, 200);
    test.backend->MatMul(x.view(), PackAs(*test.backend, weight, kind.quantization), out.view());
    for (int c = 0; c < 200; ++c) {
      const float* row = weight.values().row(c);
      const Quantized w = QuantizeWeights(row, 1000, kind.dtype);
      for (int r = 0; r < 3; ++r) {
        const Quantized a = QuantizeActivations(x.row(r), 1000);
        double exact = 0.0;
        double allowed = 0.0;
        for (int k = 0; k < 1000; ++k) {
          const double off_w = std::abs(w.scales[k / 128]) * (kind.dtype == DType::kInt8 ? 0.5 : 1);
          const double off_x = a.scales[k / 128] * 0.5;
          exact += double{row[k]} * x.at(r, k);
          allowed += std::abs(row[k]) * off_x + std::abs(x.at(r, k)) * off_w + off_w * off_x;
        }
        ASSERT_NEAR(out.at(r, c), exact, allowed * (1 + 1e-5));
        // And far nearer than it need be: errors are as often up as down.
        ASSERT_NEAR(out.at(r, c), exact, allowed * 0.2) << NameOf(kind.dtype);
      }
    }
  }
}

TEST(QuantizedProduct, RowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(3);
  for (TestBackend& test : AllBackends()) {
    for (const QuantizedKind kind : kQuantizedKinds) {
      const PackedWeight packed =
          PackAs(*test.backend, TestWeight(TestMatrix::Random(150, 300, random), DType::kBF16),
                 kind.quantization);
      const TestMatrix x = TestMatrix::Random(60, 300, random);
      TestMatrix alone(60, 150);
      for (int r = 0; r < 60; ++r) {
        TestMatrix out(1, 150);
        test.backend->MatMul(x.Rows({r}).view(), packed, out.view());
        std::copy_n(out.row(0), 150, alone.row(r));
      }
      std::vector<int> counts = Iota(18);
      counts.insert(counts.end(), {32, 60});
      for (const int count : counts) {
        std::vector<int> order = Iota(60);
        std::shuffle(order.begin(), order.end(), random);
        order.resize(count);
        TestMatrix out(count, 150);
        test.backend->MatMul(x.Rows(order).view(), packed, out.view());
        for (int r = 0; r < count; ++r) {
          ASSERT_TRUE(out.SameBits(r, alone, order[r]))
              << test.label << " " << NameOf(kind.dtype) << " row " << r << " of " << count;
        }
      }
    }
  }
}

// More rows than a tile holds, and so few panels that threads share rows too.
TEST(QuantizedProduct, RowsHaveTheSameBitsForEveryNumberOfThreads) {
  std::mt19937 random(4);
  const TestMatrix x = TestMatrix::Random(1100, 256, random);
  const TestWeight weight(TestMatrix::Random(130, 256, random), DType::kBF16);
  for (const QuantizedKind kind : kQuantizedKinds) {
    TestMatrix expected(1100, 130);
    for (const int threads : {1, 2, 7}) {
      TestBackend test = MakeTestBackend(CpuIsas().front(), CpuCompute::kAuto, threads);
      TestMatrix out(1100, 130);
      test.backend->MatMul(x.view(), PackAs(*test.backend, weight, kind.quantization), out.view());
      if (threads == 1) expected = out;
      ASSERT_TRUE(out.SameBits(expected)) << threads;
    }
  }
}

// Weights that come quantised, as from a file, are those that packing makes.
TEST(QuantizedProduct, OfQuantisedPartsIsThatOfQuantisedAtPacking) {
  std::mt19937 random(5);
  TestBackend test = std::move(AllBackends().front());
  for (const QuantizedKind kind : kQuantizedKinds) {
    for (const int inputs : {3, 128, 203, 704}) {
      for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
        std::vector<TestWeight> floats;
        std::vector<std::vector<std::byte>> bytes(2);
        std::vector<std::vector<float>> scales(2);
        std::vector<WeightPart> float_parts;
        std::vector<WeightPart> parts;
        const std::vector<float> bias(100, 0.5f);
        for (int p = 0; p < 2; ++p) {
          floats.emplace_back(TestMatrix::Random(100, inputs, random), DType::kBF16);
          for (int row = 0; row < 100; ++row) {
            for (int first = 0; first < inputs; first += kQuantizationGroup) {
              const int count = std::min(kQuantizationGroup, inputs - first);
              std::vector<std::byte> group(QuantizedBytes(kind.dtype, count));
              scales[p].push_back(0.0f);
              QuantizeGroup(floats[p].values().row(row) + first, count, kind.dtype, group.data(),
                            &scales[p].back());
              bytes[p].insert(bytes[p].end(), group.begin(), group.end());
            }
          }
        }
        for (int p = 0; p < 2; ++p) {
          float_parts.push_back({.matrix = floats[p].view(), .bias = bias.data()});
          parts.push_back({.matrix = {bytes[p].data(), kind.dtype, 100, inputs, inputs},
                           .bias = bias.data(),
                           .scales = scales[p].data()});
        }
        auto from_floats = test.backend->Pack(float_parts, order, kind.quantization);
        auto from_quantized = test.backend->Pack(parts, order, Quantization::kNone);
        ASSERT_TRUE(from_floats.ok() && from_quantized.ok());
        ASSERT_EQ(from_floats->bytes_read, from_quantized->bytes_read);
        EXPECT_EQ(std::memcmp(from_floats->data.data(), from_quantized->data.data(),
                              from_floats->bytes_read),
                  0)
            << NameOf(kind.dtype) << " K " << inputs;
      }
    }
  }
}

TEST(QuantizedProduct, WhatIsNotFiniteStaysInItsRow) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    for (const QuantizedKind kind : kQuantizedKinds) {
      const PackedWeight packed =
          PackAs(*test.backend, TestWeight(TestMatrix::Random(80, 200, random), DType::kBF16),
                 kind.quantization);
      TestMatrix x = TestMatrix::Random(9, 200, random);
      TestMatrix clean(9, 80), out(9, 80);
      test.backend->MatMul(x.view(), packed, clean.view());
      x.at(4, 17) = NAN;
      x.at(7, 150) = -INFINITY;
      test.backend->MatMul(x.view(), packed, out.view());
      for (int r = 0; r < 9; ++r) {
        for (int c = 0; c < 80; ++c) {
          if (r == 4 || r == 7) {
            EXPECT_TRUE(std::isnan(out.at(r, c))) << test.label << " row " << r;
          } else {
            ASSERT_EQ(out.at(r, c), clean.at(r, c)) << test.label << " row " << r;
          }
        }
      }
    }
  }
}

TEST(QuantizedProduct, OfNothingIsNothing) {
  for (TestBackend& test : AllBackends()) {
    for (const QuantizedKind kind : kQuantizedKinds) {
      TestMatrix zeros(70, 130), ones(2, 130), out(2, 70);
      std::fill_n(ones.row(0), 130, 1.0f);
      std::fill_n(ones.row(1), 130, 1e-40f);  // counts as zeros
      const PackedWeight none =
          PackAs(*test.backend, TestWeight(zeros, DType::kF32), kind.quantization);
      test.backend->MatMul(ones.view(), none, out.view());
      EXPECT_EQ(out.at(0, 69), 0.0f);
      for (int r = 0; r < 70; ++r) std::fill_n(zeros.row(r), 130, -1.0f);
      const PackedWeight some =
          PackAs(*test.backend, TestWeight(zeros, DType::kF32), kind.quantization);
      test.backend->MatMul(ones.view(), some, out.view());
      EXPECT_NEAR(out.at(0, 69), -130.0f, 130 * 0x1p-21) << test.label;
      EXPECT_EQ(out.at(1, 69), 0.0f) << test.label;
    }
  }
}

TEST(QuantizedProductSwiGlu, IsSiluOfTheGateTimesUp) {
  std::mt19937 random(8);
  for (TestBackend& test : AllBackends()) {
    for (const QuantizedKind kind : kQuantizedKinds) {
      const TestWeight gate(TestMatrix::Random(100, 140, random), DType::kBF16);
      const TestWeight up(TestMatrix::Random(100, 140, random), DType::kBF16);
      auto packed = test.backend->Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp,
                                       kind.quantization);
      ASSERT_TRUE(packed.ok());
      const TestMatrix x = TestMatrix::Random(8, 140, random);
      TestMatrix out(8, 100), gates(8, 100), ups(8, 100);
      test.backend->MatMulSwiGlu(x.view(), *packed, out.view());
      test.backend->MatMul(x.view(), PackAs(*test.backend, gate, kind.quantization), gates.view());
      test.backend->MatMul(x.view(), PackAs(*test.backend, up, kind.quantization), ups.view());
      for (int r = 0; r < 8; ++r) {
        for (int c = 0; c < 100; ++c) {
          const double g = gates.at(r, c), u = ups.at(r, c);
          const double expected = g / (1.0 + std::exp(-g)) * u;
          // As in product_test.cc.
          ASSERT_NEAR(out.at(r, c), expected,
                      std::abs(expected) * 0x1p-21 + 0x1p-121 * (1 + std::abs(u)));
        }
      }
    }
  }
}

TEST(Quantize, ErrsByHalfAScaleAtMost) {
  std::mt19937 random(9);
  for (const int count : {1, 2, 7, 8, 100, 128}) {
    const TestMatrix x = TestMatrix::Random(1, count, random);
    for (const QuantizedKind kind : kQuantizedKinds) {
      std::vector<std::byte> bytes(QuantizedBytes(kind.dtype, count));
      std::vector<float> back(count);
      float scale = 0.0f;
      QuantizeGroup(x.row(0), count, kind.dtype, bytes.data(), &scale);
      DequantizeGroup(bytes.data(), count, kind.dtype, scale, back.data());
      const float step = std::abs(scale);
      for (int i = 0; i < count; ++i) {
        // int4 reaches 8 steps on one side and 7 on the other.
        const bool is_cut = kind.dtype == DType::kInt4 && back[i] / scale > 6.5f;
        EXPECT_NEAR(back[i], x.at(0, i), step * (is_cut ? 1.0f : 0.5f) * (1 + 1e-5f));
      }
    }
  }
}

TEST(Quantize, LaysOutBytesAsDocumented) {
  float ten[10];
  for (int i = 0; i < 10; ++i) ten[i] = static_cast<float>(i - 8);
  std::vector<std::byte> bytes(QuantizedBytes(DType::kInt4, 10));
  ASSERT_EQ(bytes.size(), 8u);
  float scale = 0.0f;
  QuantizeGroup(ten, 10, DType::kInt4, bytes.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
  // -8 .. -1 are halves 0 .. 7; then 0 and 1, and 8 for what is not there.
  const uint8_t expected[] = {0x40, 0x51, 0x62, 0x73, 0x88, 0x89, 0x88, 0x88};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, 8), 0);
  const float two[] = {-127.0f, 63.5f};
  QuantizeGroup(two, 2, DType::kInt8, bytes.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(static_cast<int8_t>(bytes[0]), -127);
  EXPECT_EQ(static_cast<int8_t>(bytes[1]), 64);  // to even
}

}  // namespace
}  // namespace tandem
