// Tests that products by tiles have the same bits as those by vectors. Uses a plain unit of tiles
// that needs no special hardware.
#include "kernels/cpu/isa/simd_portable.h"
// The SIMD vocabulary above must be included first.
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/product_kernels.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

struct PlainUnit {
  static inline int rows = 0;  // 0: not configured
  static inline int steps = 0;

  static void Configure(int new_rows, int new_steps) {
    ASSERT_TRUE(new_rows >= 1 && new_rows <= kTileRows && new_steps <= kGroupSteps);
    rows = new_rows;
    steps = new_steps;
  }
  static void Release() { rows = 0; }
  static void Multiply(const int8_t* a, size_t a_stride, const std::byte* b, int32_t* c) {
    ASSERT_GT(rows, 0);
    for (int r = 0; r < rows; ++r) {
      for (int output = 0; output < kPanelOutputs; ++output) {
        int32_t sum = 0;
        for (int i = 0; i < 4 * steps; ++i) {
          const std::byte number = b[i / 4 * kStepBytes + output * 4 + i % 4];
          sum += a[r * a_stride + i] * std::to_integer<int32_t>(number);
        }
        c[r * kPanelOutputs + output] = sum;
      }
    }
  }
};

// Compares the two on a product as a backend calls it, with all rows at once.
template <DType kDType>
void ExpectTheSame(const PackedWeight& weight, const TestMatrix& x, Epilogue end) {
  constexpr int kFormat = static_cast<int>(BlockProductFormat(kDType));
  constexpr int kUnitGroups = BlockLayoutOf(kDType).unit_groups();
  const int groups = weight.inputs / kGroupOfBlock;
  const int units = (groups + kUnitGroups - 1) / kUnitGroups;
  std::vector<ActivationGroup> activations(size_t(units) * kUnitGroups * x.rows());
  kPortableKernels.pack_activations[kFormat](x.row(0), x.view().stride, x.cols(), x.rows(),
                                             {0, x.rows()}, activations.data());
  const int halves = end == Epilogue::kSwiGlu ? 2 : 1;
  TestMatrix wanted(x.rows(), weight.outputs / halves);
  TestMatrix found(x.rows(), weight.outputs / halves);
  const size_t panel_bytes = BlockLayoutOf(kDType).panel_bytes(weight.inputs);
  ProductTask task{.panels = static_cast<const std::byte*>(weight.data.data()),
                   .num_steps = groups,
                   .panel_bytes = panel_bytes,
                   .bias = static_cast<const float*>(weight.bias.data()),
                   .activations = activations.data(),
                   .num_rows = x.rows(),
                   .end = end,
                   .out = wanted.row(0),
                   .out_stride = wanted.view().stride,
                   .out_cols = wanted.cols()};
  const int num_units = static_cast<int>(weight.data.size_bytes() / panel_bytes) / halves;
  std::vector<float> scratch(size_t(2) * x.rows() * kPanelOutputs + 16);
  auto* const sums =
      reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  kPortableKernels.multiply[kFormat](task, {0, num_units}, {0, x.rows()}, sums);
  task.out = found.row(0);
  Multiply<TileFormat<PlainUnit, kDType>>(task, {0, num_units}, {0, x.rows()}, sums);
  EXPECT_EQ(PlainUnit::rows, 0) << "not released";
  EXPECT_TRUE(found.SameBits(wanted)) << NameOf(kDType) << ", " << x.rows() << " rows";
}

template <DType kDType>
void TestFormat(Backend& backend) {
  std::mt19937 random(11);
  for (const int inputs : {256, 288, 1024}) {
    if (inputs % BlockShapeOf(kDType).inputs != 0) continue;
    const TestMatrix values = TestMatrix::Random(70, inputs, random);
    const TestMatrix bias = TestMatrix::Random(1, 70, random);
    const TestWeight typed(values, kDType);
    const WeightPart part{.matrix = typed.view(), .bias = bias.row(0)};
    const auto alone = *backend.Pack({part}, PartOrder::kConcatenated);
    const auto gated = *backend.Pack({part, part}, PartOrder::kGateAndUp);
    for (const int rows : {1, 15, 16, 17, 32, 43}) {
      TestMatrix x = TestMatrix::Random(rows, inputs, random);
      if (rows == 17) x.at(16, 3) = NAN;
      ExpectTheSame<kDType>(alone, x, Epilogue::kStore);
      ExpectTheSame<kDType>(gated, x, Epilogue::kSwiGlu);
    }
  }
}

TEST(TileProducts, HaveTheSameBitsAsVectorProducts) {
  const std::unique_ptr<Backend> backend =
      *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kAuto, .isa = "portable"});
  ForEachBlockFormat([&]<DType kDType>() { TestFormat<kDType>(*backend); });
}

}  // namespace
}  // namespace tandem
