// Tests of packing: the bits are the same with every instruction set, and whether Pack or the first
// product packs.
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
    backend.MatMulGated(x.view(), weight, Activation::kSilu, out.view());
  } else {
    backend.MatMul(x.view(), weight, out.view());
  }
  return out;
}

bool HasSameBits(const PackedWeight& a, const PackedWeight& b) {
  return a.data.size_bytes() == b.data.size_bytes() &&
         std::memcmp(a.data.data(), b.data.data(), a.data.size_bytes()) == 0;
}

// With these sizes and numbers of threads, threads share the panels, or the rows if there are too
// few panels, or nothing. The sizes leave the last panel partly empty and, for floats, the last
// step. There are three rows, or more rows than a tile holds.
TEST(PackLater, FirstProductPacks) {
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
            if (x == &many && b % num_ways != 0) continue;  // only the best: this is slow
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

TEST(PackLater, ProductWithoutRowsPacksNothing) {
  std::mt19937 random(3);
  const TestWeight weight(TestMatrix::Random(200, 300, random), DType::kBF16);
  auto backend = MakeCpuBackend({.num_threads = 1});
  auto packed = (*backend)->PackLater({{weight.view()}}, PartOrder::kConcatenated, std::nullopt);
  ASSERT_TRUE(packed.ok());
  Multiplied(**backend, TestMatrix(0, 300), *packed);
  EXPECT_FALSE(packed->unpacked.empty());
}

// Numbers that are the same on every machine, with large and small ones in every block.
std::vector<float> PlainNumbers(int count) {
  std::mt19937 random(7);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 4096.0f;
    if (random() % 16 == 0) number *= 8;
  }
  return numbers;
}

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t HashOf(const Buffer& buffer) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* const bytes = static_cast<const uint8_t*>(buffer.data());
  for (size_t i = 0; i < buffer.size_bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

// Files keep the bytes that Pack made. If a hash below changes, raise kPackedVersion too.
TEST(Pack, MakesTheBitsOfItsVersion) {
  EXPECT_EQ(kPackedVersion, 3);
  constexpr int kOutputs = 70;
  constexpr int kInputs = 512;
  const std::vector<float> numbers = PlainNumbers(kOutputs * kInputs);
  std::vector<uint16_t> halves;
  for (const float number : numbers) halves.push_back(FloatToBf16(number));
  const ConstMatrixView floats(numbers.data(), DType::kF32, kOutputs, kInputs, kInputs);
  const ConstMatrixView bf16(halves.data(), DType::kBF16, kOutputs, kInputs, kInputs);
  const std::unique_ptr<Backend> backend = *MakeCpuBackend({.num_threads = 2});
  uint64_t hash = 0;
  for (const PartOrder order : {PartOrder::kConcatenated, PartOrder::kGateAndUp}) {
    hash ^= HashOf(backend->Pack({{.matrix = bf16}, {.matrix = bf16}}, order)->data);
    hash = hash * 31 + HashOf(backend->Pack({{.matrix = floats}, {.matrix = floats}}, order)->data);
  }
  EXPECT_EQ(hash, 0x3d98105957a77a34u);
  const struct {
    DType dtype;
    uint64_t hash;
  } formats[] = {{DType::kQ8_0, 0x4f2fd4751d797fde},  {DType::kQ4_0, 0x71f744a62b9b4f85},
                 {DType::kQ4_1, 0x74559102ca4b54ed},  {DType::kQ5_0, 0xa30a88c52d96696f},
                 {DType::kQ5_1, 0x1b168aa9600a8c41},  {DType::kQ2K, 0xcdd5aa1cb5e4a36b},
                 {DType::kQ3K, 0xdc6976ee32eea4fe},   {DType::kQ4K, 0x2d7d35954a027c23},
                 {DType::kQ5K, 0x6d72a15761af3c44},   {DType::kQ6K, 0x8b11a97035169a6b},
                 {DType::kIq4Nl, 0xd2a0279ec518ba28}, {DType::kIq4Xs, 0xcd76e513f0a3012c}};
  for (const auto& [dtype, wanted] : formats) {
    const auto weight = backend->Pack({{.matrix = floats}}, PartOrder::kConcatenated, dtype);
    EXPECT_EQ(HashOf(weight->data), wanted) << NameOf(dtype);
  }
}

TEST(UsePacked, MultipliesByPackedBytesInPlace) {
  std::mt19937 random(5);
  const TestMatrix first = TestMatrix::Random(70, 512, random);
  const TestMatrix bias = TestMatrix::Random(1, 70, random);
  const TestMatrix x = TestMatrix::Random(3, 512, random);
  for (const TestBackend& test : AllBackends(2)) {
    Backend& backend = *test.backend;
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(absl::StrCat(test.label, ", ", NameOf(kind.dtype), " as ", NameOf(kind.packed)));
      const TestWeight typed(first, kind.dtype);
      const WeightPart part{.matrix = typed.view(), .bias = bias.row(0)};
      const WeightPart shape{
          .matrix = {nullptr, kind.dtype, first.rows(), first.cols(), first.cols()},
          .bias = bias.row(0)};
      const auto made = *backend.Pack({part}, PartOrder::kConcatenated, kind.packed);
      const absl::Span<const std::byte> bytes(static_cast<const std::byte*>(made.data.data()),
                                              made.data.size_bytes());
      EXPECT_EQ(bytes.size() % kPackedAlignment, 0);
      const auto used = *backend.UsePacked({shape}, PartOrder::kConcatenated, kind.packed, bytes);
      EXPECT_TRUE(used.unpacked.empty());
      EXPECT_EQ(used.data.data(), made.data.data());
      EXPECT_TRUE(Multiplied(backend, x, used).SameBits(Multiplied(backend, x, made)));
      EXPECT_EQ(backend
                    .UsePacked({shape}, PartOrder::kConcatenated, kind.packed,
                               bytes.first(bytes.size() - 1))
                    .status()
                    .code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace tandem
