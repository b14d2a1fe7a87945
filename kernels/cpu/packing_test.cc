// Packing: the same bits by every instruction set, at once or by the first product.
#include "kernels/cpu/packing.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

struct Kind {
  DType dtype;  // of the parts
  DType packed;
};
constexpr Kind kKinds[] = {{DType::kF32, DType::kF32},   {DType::kF16, DType::kF16},
                           {DType::kBF16, DType::kBF16}, {DType::kQ4K, DType::kQ4K},
                           {DType::kF16, DType::kQ8_0},  {DType::kBF16, DType::kQ4_1},
                           {DType::kF32, DType::kQ6K}};

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
// Sizes do not fill the last panel, and those of floats not the last step. Three rows, and more
// than a tile of them.
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
  for (const Size size : {Size{230, 256}, Size{30, 1024}, Size{30, 160}, Size{30, 131}}) {
    const TestMatrix first = TestMatrix::Random(size.outputs, size.inputs, random);
    const TestMatrix second = TestMatrix::Random(size.outputs, size.inputs, random);
    const TestMatrix bias = TestMatrix::Random(1, size.outputs, random);
    const TestMatrix few = TestMatrix::Random(3, size.inputs, random);
    const TestMatrix many = TestMatrix::Random(kMaxTileRows + 3, size.inputs, random);
    for (size_t b = 0; b < backends.size(); ++b) {
      const TestBackend& test = backends[b];
      Backend& backend = *test.backend;
      for (const Kind kind : kKinds) {
        if (size.inputs % BlockShapeOf(kind.packed).inputs != 0) continue;
        const TestWeight weights[] = {{first, kind.dtype}, {second, kind.dtype}};
        const std::vector<WeightPart> parts = {{.matrix = weights[0].view(), .bias = bias.row(0)},
                                               {.matrix = weights[1].view()}};
        for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
          const auto now = backend.Pack(parts, order, kind.packed);
          ASSERT_TRUE(now.ok());
          EXPECT_TRUE(now->unpacked.empty());
          for (const TestMatrix* x : {&few, &many}) {
            if (x == &many && b % num_ways != 0) continue;  // the best alone: it takes long
            const auto later = backend.PackLater(parts, order, kind.packed);
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
  auto packed = (*backend)->PackLater({{weight.view()}}, PartOrder::kConcatenated, std::nullopt);
  ASSERT_TRUE(packed.ok());
  Multiplied(**backend, TestMatrix(0, 300), *packed);
  EXPECT_FALSE(packed->unpacked.empty());
}

}  // namespace
}  // namespace tandem
