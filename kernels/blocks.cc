// The layouts are those of GGUF's specification (ggml, docs/gguf.md and the types it names).
#include "kernels/blocks.h"

#include <cstring>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int kSuperBlock = 256;  // weights of a block of the K formats and of IQ4_XS

// A block's bytes.
class Block {
 public:
  explicit Block(const std::byte* bytes) : bytes_(bytes) {}

  int Byte(int at) const { return static_cast<int>(bytes_[at]); }
  int Signed(int at) const { return static_cast<int8_t>(bytes_[at]); }
  int Low(int at) const { return Byte(at) & 15; }
  int High(int at) const { return Byte(at) >> 4; }
  uint16_t F16(int at) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + at, sizeof(bits));
    return bits;
  }
  // -F16(at).
  uint16_t NegativeF16(int at) const { return F16(at) ^ 0x8000; }
  // Half i of 16 bytes from `at` on: the low ones, then the high ones.
  int Half(int at, int i) const { return i < 16 ? Low(at + i) : High(at + i - 16); }
  int Bit(int at, int i) const { return Byte(at + i / 8) >> i % 8 & 1; }

 private:
  const std::byte* bytes_;
};

BlockGroup ReadQ8_0(Block block) {
  BlockGroup group;
  group.scale = block.F16(0);
  for (int i = 0; i < kBlockGroup; ++i) group.numbers[i] = static_cast<int8_t>(block.Signed(2 + i));
  return group;
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, perhaps the numbers' fifth bits, their
// halves.
BlockGroup ReadSmall(Block block, bool has_minimum, bool has_fifth_bit) {
  BlockGroup group;
  group.scale = block.F16(0);
  if (has_minimum) group.minimum = block.F16(2);
  const int bits = has_minimum ? 4 : 2;
  const int halves = bits + (has_fifth_bit ? 4 : 0);
  const int zero = has_minimum ? 0 : has_fifth_bit ? 16 : 8;
  for (int i = 0; i < kBlockGroup; ++i) {
    const int fifth = has_fifth_bit ? block.Bit(bits, i) << 4 : 0;
    group.numbers[i] = static_cast<int8_t>((block.Half(halves, i) | fifth) - zero);
  }
  return group;
}

BlockGroup ReadIq4Nl(Block block) {
  BlockGroup group;
  group.scale = block.F16(0);
  for (int i = 0; i < kBlockGroup; ++i) group.numbers[i] = kIq4Numbers[block.Half(2, i)];
  return group;
}

BlockGroup ReadIq4Xs(Block block, int index) {
  constexpr int kScalesHigh = 2;
  constexpr int kScalesLow = 4;
  constexpr int kHalves = 8;
  const int low = block.Byte(kScalesLow + index / 2) >> 4 * (index % 2) & 15;
  const int high = block.Byte(kScalesHigh + index / 4) >> 2 * (index % 4) & 3;
  BlockGroup group;
  group.scale = block.F16(0);
  for (int8_t& factor : group.scale_factors) factor = static_cast<int8_t>((low | high << 4) - 32);
  for (int i = 0; i < kBlockGroup; ++i) {
    group.numbers[i] = kIq4Numbers[block.Half(kHalves + 16 * index, i)];
  }
  return group;
}

// Q2_K: two bits; scale and minimum of each 16 are the halves of a byte.
BlockGroup ReadQ2K(Block block, int index) {
  constexpr int kNumbers = 16;
  constexpr int kScales = 80;
  BlockGroup group;
  group.scale = block.F16(kScales);
  group.minimum = block.NegativeF16(kScales + 2);
  for (int half = 0; half < 2; ++half) {
    const int at = 2 * index + half;
    group.scale_factors[half] = static_cast<int8_t>(block.Low(at));
    group.minimum_factors[half] = static_cast<int8_t>(block.High(at));
  }
  for (int i = 0; i < kBlockGroup; ++i) {
    group.numbers[i] =
        static_cast<int8_t>(block.Byte(kNumbers + index / 4 * 32 + i) >> 2 * (index % 4) & 3);
  }
  return group;
}

// Q3_K: two bits, and a third whose absence takes 4 away; scales of 6 bits, 32 more than they are.
BlockGroup ReadQ3K(Block block, int index) {
  constexpr int kNumbers = 32;
  constexpr int kScales = 96;
  constexpr int kScale = 108;
  BlockGroup group;
  group.scale = block.F16(kScale);
  for (int half = 0; half < 2; ++half) {
    const int i = 2 * index + half;
    const int low = i < 8 ? block.Low(kScales + i) : block.High(kScales + i - 8);
    const int high = block.Byte(kScales + 8 + i % 4) >> 2 * (i / 4) & 3;
    group.scale_factors[half] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (int i = 0; i < kBlockGroup; ++i) {
    const int low = block.Byte(kNumbers + index / 4 * 32 + i) >> 2 * (index % 4) & 3;
    const int third = block.Byte(i) >> index & 1;
    group.numbers[i] = static_cast<int8_t>(low - (third != 0 ? 0 : 4));
  }
  return group;
}

// Scale and minimum of 6 bits each, as 12 bytes from 4 on hold the 8 of a block of Q4_K or Q5_K.
void ReadScalesOfK(Block block, int index, BlockGroup* group) {
  constexpr int kScales = 4;
  int scale = 0;
  int minimum = 0;
  if (index < 4) {
    scale = block.Byte(kScales + index) & 63;
    minimum = block.Byte(kScales + 4 + index) & 63;
  } else {
    scale = block.Low(kScales + 4 + index) | block.Byte(kScales + index - 4) >> 6 << 4;
    minimum = block.High(kScales + 4 + index) | block.Byte(kScales + index) >> 6 << 4;
  }
  group->scale = block.F16(0);
  group->minimum = block.NegativeF16(2);
  for (int8_t& factor : group->scale_factors) factor = static_cast<int8_t>(scale);
  for (int8_t& factor : group->minimum_factors) factor = static_cast<int8_t>(minimum);
}

BlockGroup ReadQ4K(Block block, int index) {
  constexpr int kHalves = 16;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  for (int i = 0; i < kBlockGroup; ++i) {
    const int at = kHalves + index / 2 * 32 + i;
    group.numbers[i] = static_cast<int8_t>(index % 2 == 0 ? block.Low(at) : block.High(at));
  }
  return group;
}

BlockGroup ReadQ5K(Block block, int index) {
  constexpr int kFifthBits = 16;
  constexpr int kHalves = 48;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  for (int i = 0; i < kBlockGroup; ++i) {
    const int at = kHalves + index / 2 * 32 + i;
    const int low = index % 2 == 0 ? block.Low(at) : block.High(at);
    group.numbers[i] = static_cast<int8_t>(low | (block.Byte(kFifthBits + i) >> index & 1) << 4);
  }
  return group;
}

// Q6_K: of each 128 weights 64 bytes of halves and 32 of pairs of bits.
BlockGroup ReadQ6K(Block block, int index) {
  constexpr int kPairs = 128;
  constexpr int kScales = 192;
  constexpr int kScale = 208;
  const int part = index / 4;    // of 128 weights
  const int column = index % 4;  // of 32 weights in it
  BlockGroup group;
  group.scale = block.F16(kScale);
  for (int half = 0; half < 2; ++half) {
    group.scale_factors[half] = static_cast<int8_t>(block.Signed(kScales + 2 * index + half));
  }
  for (int i = 0; i < kBlockGroup; ++i) {
    const int at = 64 * part + 32 * (column % 2) + i;
    const int low = column < 2 ? block.Low(at) : block.High(at);
    const int pair = block.Byte(kPairs + 32 * part + i) >> 2 * column & 3;
    group.numbers[i] = static_cast<int8_t>((low | pair << 4) - 32);
  }
  return group;
}

}  // namespace

BlockShape BlockShapeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {1, static_cast<int>(SizeOf(dtype))};
    case DType::kInt8:
    case DType::kInt4:
      break;
    case DType::kQ8_0:
      return {kBlockGroup, 34};
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return {kBlockGroup, 18};
    case DType::kQ4_1:
      return {kBlockGroup, 20};
    case DType::kQ5_0:
      return {kBlockGroup, 22};
    case DType::kQ5_1:
      return {kBlockGroup, 24};
    case DType::kQ2K:
      return {kSuperBlock, 84};
    case DType::kQ3K:
      return {kSuperBlock, 110};
    case DType::kQ4K:
      return {kSuperBlock, 144};
    case DType::kQ5K:
      return {kSuperBlock, 176};
    case DType::kQ6K:
      return {kSuperBlock, 210};
    case DType::kIq4Xs:
      return {kSuperBlock, 136};
  }
  TANDEM_CHECK(false);
}

size_t RowBytes(DType dtype, int64_t cols) {
  const BlockShape shape = BlockShapeOf(dtype);
  TANDEM_CHECK(cols % shape.inputs == 0);
  return static_cast<size_t>(cols / shape.inputs) * shape.bytes;
}

BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group) {
  const BlockShape shape = BlockShapeOf(dtype);
  const int groups = shape.inputs / kBlockGroup;  // of a block
  TANDEM_CHECK(groups > 0);
  const Block block(row + static_cast<size_t>(group / groups) * shape.bytes);
  const int index = group % groups;
  switch (dtype) {
    case DType::kQ8_0:
      return ReadQ8_0(block);
    case DType::kQ4_0:
      return ReadSmall(block, false, false);
    case DType::kQ4_1:
      return ReadSmall(block, true, false);
    case DType::kQ5_0:
      return ReadSmall(block, false, true);
    case DType::kQ5_1:
      return ReadSmall(block, true, true);
    case DType::kQ2K:
      return ReadQ2K(block, index);
    case DType::kQ3K:
      return ReadQ3K(block, index);
    case DType::kQ4K:
      return ReadQ4K(block, index);
    case DType::kQ5K:
      return ReadQ5K(block, index);
    case DType::kQ6K:
      return ReadQ6K(block, index);
    case DType::kIq4Nl:
      return ReadIq4Nl(block);
    case DType::kIq4Xs:
      return ReadIq4Xs(block, index);
    default:
      TANDEM_CHECK(false);
  }
}

}  // namespace tandem
