// Packing: the same bits by every instruction set, now or later.
#include "kernels/cpu/packing.h"

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

// Sizes that fill neither the last panel nor the last group; enough weights to stay unpacked.
TEST(PackLater, ProductsHaveTheBitsTheyHaveWhenPacked) {
  std::mt19937 random(2);
  const TestMatrix first = TestMatrix::Random(1030, 1026, random);
  const TestMatrix second = TestMatrix::Random(1030, 1026, random);
  const TestMatrix bias = TestMatrix::Random(1, 1030, random);
  const TestMatrix few = TestMatrix::Random(3, 1026, random);
  const TestMatrix many = TestMatrix::Random(520, 1026, random);  // two tiles of rows
  std::vector<TestBackend> backends = AllBackends();
  for (const Kind kind : kKinds) {
    const TestWeight weights[] = {{first, kind.dtype}, {second, kind.dtype}};
    const std::vector<WeightPart> parts = {{.matrix = weights[0].view(), .bias = bias.row(0)},
                                           {.matrix = weights[1].view()}};
    for (size_t b = 0; b < backends.size(); ++b) {
      Backend& backend = *backends[b].backend;
      for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
        const TestMatrix& x = b == 0 && order == PartOrder::kConcatenated ? many : few;
        auto now = backend.Pack(parts, order, kind.quantization);
        auto later = backend.PackLater(parts, order, kind.quantization);
        ASSERT_TRUE(now.ok() && later.ok());
        EXPECT_TRUE(now->unpacked.empty());
        EXPECT_FALSE(later->unpacked.empty());
        const TestMatrix expected = Multiplied(backend, x, *now);
        ASSERT_TRUE(Multiplied(backend, x, *later).SameBits(expected))
            << backends[b].label << " " << NameOf(now->dtype);
        backend.Settle(&*later);
        EXPECT_TRUE(later->unpacked.empty());
        ASSERT_TRUE(Multiplied(backend, x, *later).SameBits(expected)) << backends[b].label;
      }
    }
  }
}

TEST(PackLater, PacksSmallWeightsNow) {
  std::mt19937 random(3);
  const TestWeight weight(TestMatrix::Random(70, 30, random), DType::kBF16);
  auto backend = MakeCpuBackend({.num_threads = 1});
  auto packed =
      (*backend)->PackLater({{weight.view()}}, PartOrder::kConcatenated, Quantization::kNone);
  ASSERT_TRUE(packed.ok());
  EXPECT_TRUE(packed->unpacked.empty());
}

}  // namespace
}  // namespace tandem
