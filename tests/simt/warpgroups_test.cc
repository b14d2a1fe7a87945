// Products by warpgroups on the host: their bits, and each fault that the machine claims to detect.
#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/product_layout.h"
#include "tests/simt/simt_testing.h"

namespace tandem::cuda {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kInputs = 32;  // two products
constexpr int kRegisters = 4 * kWarpgroupThreads;

// 64 outputs by 8 * kRowTiles rows of 32 inputs, with sums that begin at 1.
// in: [products][threads] of 16 bytes, then an image of the rows. out: [threads][row tiles][4].
enum class Misuse {
  kNothing,
  kNoFence,            // registers are loaded and multiplied
  kNoFenceAfterLoad,   // the second product's weights are loaded after the fence
  kNoFenceAfterZero,   // the sums are changed between fence and product
  kReadsSums,          // before the wait
  kWritesSums,         // before the wait
  kWritesWeights,      // before the wait
  kWritesRows,         // one thread, before the wait
  kWritesOtherInputs,  // which are not read
  kWritesRowsAfterwards,
  kNoProxyFence,   // rows are written and multiplied
  kNoBarrier,      // rows of other threads
  kNoWait,         // leaves
  kOneWarpLess,    // multiplies
  kOtherRows,      // one warp multiplies others
  kWaitsForFirst,  // of two groups; reads the sums of the second
  kMisaligned,     // rows
};

template <int kRowTiles, Misuse kMisuse>
struct Multiplies {
  using Task = Numbers;
  static constexpr int kThreads = kWarpgroupThreads;
  static constexpr int kRowBytesOfAll = kRowTiles * 1024;
  static constexpr bool Is(Misuse planted) { return kMisuse == planted; }

  static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    const auto* const weights = reinterpret_cast<const Words4*>(task.in);
    const auto* const image = reinterpret_cast<const Words4*>(task.in + 2 * kRegisters);
    auto* const to = reinterpret_cast<Words4*>(shared);
    for (int i = ThreadIndex(); i < kRowBytesOfAll / 16; i += kThreads) {
      Store(to + i, Load(image + i));
    }
    if (!Is(Misuse::kNoProxyFence)) FenceBulkCopies();
    if (!Is(Misuse::kNoBarrier)) Barrier();
    if (Is(Misuse::kOneWarpLess) && WarpIndex() == 3) return;

    float sums[kRowTiles][4];
    for (auto& tile : sums) {
      for (float& sum : tile) sum = 1.0f;
    }
    const SharedRows rows = RowsAt(shared + (Is(Misuse::kMisaligned) ? 128 : 0));
    Words4 a[2] = {Load(weights + ThreadIndex()), {}};
    if (!Is(Misuse::kNoFenceAfterLoad)) a[1] = Load(weights + kThreads + ThreadIndex());
    if (!Is(Misuse::kNoFence)) FenceRegisters(sums, a);
    if (Is(Misuse::kNoFenceAfterLoad)) a[1] = Load(weights + kThreads + ThreadIndex());
    if (Is(Misuse::kNoFenceAfterZero)) sums[kRowTiles - 1][3] = 0.0f;
    const bool is_other = Is(Misuse::kOtherRows) && WarpIndex() == 2;
    MultiplyRowsAsync(a[0], FromInput(rows, is_other ? 16 : 0), sums);
    MultiplyCommit();
    MultiplyRowsAsync(a[1], FromInput(rows, 16), sums);
    MultiplyCommit();
    if (Is(Misuse::kNoWait)) return;
    if (Is(Misuse::kWaitsForFirst)) MultiplyWait<1>();
    if (Is(Misuse::kReadsSums) || Is(Misuse::kWaitsForFirst)) {
      Store(reinterpret_cast<float*>(task.out) + ThreadIndex(), 2.0f * sums[0][1]);
    }
    if (Is(Misuse::kWritesSums)) sums[0][1] = 1.0f;
    if (Is(Misuse::kWritesWeights)) a[1].words[2] ^= 1;
    if (Is(Misuse::kWritesRows) && ThreadIndex() == 0) Store(to + 5 * 8 + 5, Words4{});
    if (Is(Misuse::kWritesOtherInputs) && ThreadIndex() == 0) Store(to + 5 * 8, Words4{});
    MultiplyWaitForAll(sums);
    if (Is(Misuse::kWritesRowsAfterwards)) {
      Barrier();
      if (ThreadIndex() == 0) Store(to + 5 * 8 + 5, Words4{});
    }
    for (int tile = 0; tile < kRowTiles; ++tile) {
      for (int i = 0; i < 4; ++i) {
        Store(reinterpret_cast<float*>(task.out) + (ThreadIndex() * kRowTiles + tile) * 4 + i,
              sums[tile][i]);
      }
    }
  }
};

// Random weights and rows, and their places in a kernel's input.
template <int kRowTiles>
class Operands {
 public:
  static constexpr int kRows = kRowTiles * kTileRows;
  static constexpr int kWords = 2 * kRegisters + kRowTiles * 256;

  Operands() : in(kWords), out(kWarpgroupThreads * kRowTiles * 4) {
    std::mt19937 random(kRowTiles);
    const auto number = [&] {
      return static_cast<uint16_t>(0x3C00 + random() % 0x400 + random() % 2 * 0x8000);
    };
    auto* const words = reinterpret_cast<uint16_t*>(in.data());
    std::memset(words, 0, size_t{4} * kWords);
    for (int output = 0; output < 64; ++output) {
      for (int input = 0; input < kInputs; ++input) {
        const int word = WordOfWeight(output % 16, input % 16 / 2 * 2);
        const int thread = output / 16 * kWarpSize + word / 4;
        weights[output][input] = number();
        words[((input / 16 * kWarpgroupThreads + thread) * 4 + word % 4) * 2 + input % 2] =
            weights[output][input];
      }
    }
    for (int row = 0; row < kRows; ++row) {
      for (int input = 0; input < kInputs; ++input) {
        rows[row][input] = number();
        words[4 * kRegisters + RowsImageOffset(kRowTiles, row, input) / 2] = rows[row][input];
      }
    }
  }
  template <Misuse kMisuse>
  std::string Fault() {
    return cuda::Fault<Multiplies<kRowTiles, kMisuse>>({in.data(), out.data()},
                                                       {1, 1, 1, kRowTiles * 1024 + 1024});
  }

  Array in, out;
  uint16_t weights[64][kInputs];
  uint16_t rows[kRows][kInputs];
};

template <int kRowTiles>
void ExpectSums() {
  Operands<kRowTiles> with;
  ASSERT_THAT(with.template Fault<Misuse::kNothing>(), IsEmpty());
  for (int output = 0; output < 64; ++output) {
    for (int row = 0; row < kRowTiles * kTileRows; ++row) {
      float sum = 1.0f;
      for (int first = 0; first < kInputs; first += 16) {
        simt::TensorNumber a[16], b[16];
        for (int i = 0; i < 16; ++i) {
          a[i] = simt::TensorNumber::OfBf16(with.weights[output][first + i]);
          b[i] = simt::TensorNumber::OfBf16(with.rows[row][first + i]);
        }
        sum = simt::MultiplyAndAdd(simt::kHopper, a, b, sum);
      }
      const int thread = output / 16 * kWarpSize + output % 8 * 4 + row % 8 / 2;
      const int at = (thread * kRowTiles + row / 8) * 4 + output % 16 / 8 * 2 + row % 2;
      ASSERT_EQ(with.out[at], static_cast<int>(FloatToBits(sum))) << output << ", " << row;
    }
  }
}
TEST(Warpgroups, MultiplyLikeTiles) {
  ExpectSums<8>();
  ExpectSums<16>();
  ExpectSums<24>();
  ExpectSums<32>();
}

template <Misuse kMisuse>
std::string FaultOf() {
  Operands<8> with;
  return with.Fault<kMisuse>();
}
TEST(Warpgroups, SeeRegistersThatNoFenceHasOrdered) {
  EXPECT_THAT(FaultOf<Misuse::kNoFence>(), HasSubstr("no fence has ordered"));
  EXPECT_THAT(FaultOf<Misuse::kNoFenceAfterLoad>(), HasSubstr("no fence has ordered"));
  EXPECT_THAT(FaultOf<Misuse::kNoFenceAfterZero>(), HasSubstr("no fence has ordered"));
}
TEST(Warpgroups, SeeRegistersOfUnfinishedProducts) {
  EXPECT_THAT(FaultOf<Misuse::kReadsSums>(), HasSubstr("stores a sum of an unfinished product"));
  EXPECT_THAT(FaultOf<Misuse::kWaitsForFirst>(),
              HasSubstr("stores a sum of an unfinished product"));
  EXPECT_THAT(FaultOf<Misuse::kWritesSums>(), HasSubstr("changes sums"));
  EXPECT_THAT(FaultOf<Misuse::kWritesWeights>(), HasSubstr("changes weights"));
}
TEST(Warpgroups, SeeRowsThatAreOverwritten) {
  EXPECT_THAT(FaultOf<Misuse::kWritesRows>(), HasSubstr("an unfinished product may read"));
  EXPECT_THAT(FaultOf<Misuse::kWritesOtherInputs>(), IsEmpty());
  EXPECT_THAT(FaultOf<Misuse::kWritesRowsAfterwards>(), IsEmpty());
}
TEST(Warpgroups, SeeRowsThatAreNotReady) {
  EXPECT_THAT(FaultOf<Misuse::kNoProxyFence>(), HasSubstr("wrote without a fence"));
  EXPECT_THAT(FaultOf<Misuse::kNoBarrier>(),
              AnyOf(HasSubstr("a race"), HasSubstr("an unfinished product may read")));
  EXPECT_THAT(FaultOf<Misuse::kMisaligned>(), HasSubstr("not aligned"));
}
TEST(Warpgroups, SeeWarpsThatDoNotTakePart) {
  EXPECT_THAT(FaultOf<Misuse::kNoWait>(), HasSubstr("did not wait for"));
  EXPECT_THAT(FaultOf<Misuse::kOneWarpLess>(), HasSubstr("different products"));
  EXPECT_THAT(FaultOf<Misuse::kOtherRows>(), HasSubstr("another warp of the warpgroup differs"));
}

// Three warpgroups, of which the last gives registers to the others.
template <int kGiven, int kTaken>
struct MovesRegisters : OfNumbers {
  static constexpr int kThreads = 3 * kWarpgroupThreads;
  static void Run(const Task&, unsigned char*) {
    WaitForKernelsBefore();
    if (ThreadIndex() >= 2 * kWarpgroupThreads) {
      LowerRegisters<kGiven>();
    } else {
      RaiseRegisters<kTaken>();
    }
  }
};
TEST(Warpgroups, MoveRegisters) {
  EXPECT_THAT((FaultOfArrays<MovesRegisters<40, 232>>()), IsEmpty());
  EXPECT_THAT((FaultOfArrays<MovesRegisters<40, 240>>()),
              HasSubstr("threads have 66560 registers"));
  EXPECT_THAT((FaultOfArrays<MovesRegisters<44, 232>>()), HasSubstr("wrong number"));
  EXPECT_THAT((FaultOfArrays<MovesRegisters<176, 232>>()), HasSubstr("from 168 to 176"));
  EXPECT_THAT((FaultOfArrays<MovesRegisters<40, 160>>()), HasSubstr("from 168 to 160"));
}

}  // namespace
}  // namespace tandem::cuda
