// Packing: the same bits by every instruction set, at once or by the first product.
#include "kernels/cpu/packing.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/kernel_testing.h"
#include "kernels/quantize.h"

namespace tandem {
namespace {

// Groups whose weights are ordinary, all small, all zeros, of one sign, or as large as two others.
std::vector<float> GroupOf(int kind, int count, std::mt19937& random) {
  const TestMatrix normal = TestMatrix::Random(1, count, random);
  std::vector<float> group(normal.row(0), normal.row(0) + count);
  for (float& x : group) {
    if (kind == 1) x *= 0x1p-102f;
    if (kind == 2) x = std::copysign(0.0f, x);
    if (kind == 3) x = -std::abs(x);
    if (kind == 4) x = std::abs(x);
    if (kind == 5) x = std::copysign(1.5f, x);
    x = Bf16ToFloat(FloatToBf16(x));
  }
  return group;
}

TEST(QuantizeGroupKernel, IsQuantizeGroupToTheBit) {
  std::mt19937 random(1);
  for (int round = 0; round < 600; ++round) {
    const int count = round % 3 == 0 ? 1 + round % 128 : 128;
    const std::vector<float> group = GroupOf(round % 6, count, random);
    std::vector<uint16_t> halves;
    for (const float x : group) halves.push_back(FloatToBf16(x));
    for (const DType dtype : {DType::kInt8, DType::kInt4}) {
      std::vector<std::byte> expected(
          QuantizedBytes(dtype, kQuantizationGroup),
          std::byte{dtype == DType::kInt8 ? uint8_t{0} : uint8_t{0x88}});
      float expected_scale = 0.0f;
      QuantizeGroup(group.data(), count, dtype, expected.data(), &expected_scale);
      for (const CpuKernels* kernels : RunnableCpuKernels()) {
        for (const GroupSource source : {GroupSource::kF32, GroupSource::kBF16}) {
          const void* weights = halves.data();
          if (source == GroupSource::kF32) weights = group.data();
          std::vector<std::byte> out(expected.size(), std::byte{0xA5});
          float scale = -1.0f;
          kernels->quantize_group(static_cast<const std::byte*>(weights), source, count,
                                  dtype == DType::kInt4, out.data(), &scale);
          ASSERT_EQ(out, expected) << kernels->name << " kind " << round % 6 << " of " << count;
          ASSERT_EQ(scale, expected_scale) << kernels->name << " kind " << round % 6;
        }
      }
    }
  }
}

struct Kind {
  DType dtype;
  Quantization quantization;
};
constexpr Kind kKinds[] = {
    {DType::kF32, Quantization::kNone},  {DType::kF16, Quantization::kNone},
    {DType::kBF16, Quantization::kNone}, {DType::kF16, Quantization::kInt8},
    {DType::kBF16, Quantization::kInt8}, {DType::kBF16, Quantization::kInt4}};

TestMatrix Multiplied(Backend& backend, const TestMatrix& x, const PackedWeight& weight) {
  const bool is_gated = weight.order == PartOrder::kGateAndUp;
  TestMatrix out(x.rows(), weight.outputs / (is_gated ? 2 : 1));
  if (is_gated) {
    backend.MatMulSwiGlu(x.view(), weight, out.view());
  } else {
    backend.MatMul(x.view(), weight, out.view());
  }
  return out;
}

bool HasSameBits(const PackedWeight& a, const PackedWeight& b) {
  return a.data.size_bytes() == b.data.size_bytes() &&
         std::memcmp(a.data.data(), b.data.data(), a.data.size_bytes()) == 0;
}

// Weights of so many panels that threads share these out, the rows (too few panels), or nothing.
// Sizes fill neither the last panel nor the last group. Three rows, and more than a tile of them.
TEST(PackLater, TheFirstProductPacks) {
  std::mt19937 random(2);
  struct Size {
    int outputs;  // of each of two parts
    int inputs;
  };
  std::vector<TestBackend> backends = AllBackends(1);
  for (const int threads : {2, 3}) {
    for (TestBackend& test : AllBackends(threads)) {
      absl::StrAppend(&test.label, ", ", threads, " threads");
      backends.push_back(std::move(test));
    }
  }
  const size_t num_ways = backends.size() / 3;
  for (const Size size : {Size{230, 258}, Size{30, 1026}, Size{30, 130}}) {
    const TestMatrix first = TestMatrix::Random(size.outputs, size.inputs, random);
    const TestMatrix second = TestMatrix::Random(size.outputs, size.inputs, random);
    const TestMatrix bias = TestMatrix::Random(1, size.outputs, random);
    const TestMatrix few = TestMatrix::Random(3, size.inputs, random);
    const TestMatrix many = TestMatrix::Random(kMaxTileRows + 3, size.inputs, random);
    for (size_t b = 0; b < backends.size(); ++b) {
      const TestBackend& test = backends[b];
      Backend& backend = *test.backend;
      for (const Kind kind : kKinds) {
        const TestWeight weights[] = {{first, kind.dtype}, {second, kind.dtype}};
        const std::vector<WeightPart> parts = {{.matrix = weights[0].view(), .bias = bias.row(0)},
                                               {.matrix = weights[1].view()}};
        for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
          const auto now = backend.Pack(parts, order, kind.quantization);
          ASSERT_TRUE(now.ok());
          EXPECT_TRUE(now->unpacked.empty());
          for (const TestMatrix* x : {&few, &many}) {
            if (x == &many && b % num_ways != 0) continue;  // the best alone: it takes long
            const auto later = backend.PackLater(parts, order, kind.quantization);
            ASSERT_TRUE(later.ok());
            EXPECT_FALSE(later->unpacked.empty());
            const TestMatrix expected = Multiplied(backend, *x, *now);
            const std::string label =
                absl::StrCat(test.label, " ", NameOf(now->dtype), " of ", size.outputs);
            ASSERT_TRUE(Multiplied(backend, *x, *later).SameBits(expected)) << label;
            EXPECT_TRUE(later->unpacked.empty()) << label;
            ASSERT_TRUE(HasSameBits(*later, *now)) << label;
            ASSERT_TRUE(Multiplied(backend, *x, *later).SameBits(expected)) << label;
          }
        }
      }
    }
  }
}

TEST(PackLater, AProductOfNoRowsPacksNothing) {
  std::mt19937 random(3);
  const TestWeight weight(TestMatrix::Random(200, 300, random), DType::kBF16);
  auto backend = MakeCpuBackend({.num_threads = 1});
  auto packed =
      (*backend)->PackLater({{weight.view()}}, PartOrder::kConcatenated, Quantization::kNone);
  ASSERT_TRUE(packed.ok());
  Multiplied(**backend, TestMatrix(0, 300), *packed);
  EXPECT_FALSE(packed->unpacked.empty());
}

}  // namespace
}  // namespace tandem
