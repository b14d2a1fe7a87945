// The layouts are those of GGUF's specification (ggml, docs/gguf.md and the types it names).
#include "kernels/blocks.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int kSuperBlock = 256;  // weights of a block of the K formats and of IQ4_XS

// The same bit of each byte of a word, and the halves and quarters of bytes.
constexpr uint32_t kBits = 0x01010101;
constexpr uint32_t kQuarters = 0x03030303;
constexpr uint32_t kHalves = 0x0F0F0F0F;
constexpr int kGroupWords = kBlockGroup / 4;

// A block's bytes.
class Block {
 public:
  explicit Block(const std::byte* bytes) : bytes_(bytes) {}

  int Byte(int at) const { return static_cast<int>(bytes_[at]); }
  int Low(int at) const { return Byte(at) & 15; }
  int High(int at) const { return Byte(at) >> 4; }
  uint32_t Word(int at) const {
    uint32_t word;
    std::memcpy(&word, bytes_ + at, sizeof(word));
    return word;
  }
  uint16_t F16(int at) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + at, sizeof(bits));
    return bits;
  }
  // -F16(at).
  uint16_t NegativeF16(int at) const { return F16(at) ^ 0x8000; }

 private:
  const std::byte* bytes_;
};

// The codes as words of four in increasing input.
template <typename WordOf>
void SetCodes(BlockGroup* group, WordOf word_of) {
  for (int k = 0; k < kGroupWords; ++k) {
    const uint32_t word = word_of(k);
    std::memcpy(group->codes + 4 * k, &word, sizeof(word));
  }
}

// 16 bytes from `at` on whose low halves are the first codes, and whose high halves the last.
uint32_t WordOfHalves(Block block, int at, int k) {
  return block.Word(at + k % 4 * 4) >> k / 4 * 4 & kHalves;
}

BlockGroup ReadQ8_0(Block block) {
  BlockGroup group;
  group.zero = 128;
  group.scale = block.F16(0);
  SetCodes(&group, [&](int k) { return block.Word(2 + 4 * k) ^ 0x80808080; });
  return group;
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, perhaps the numbers' fifth bits, their
// halves.
BlockGroup ReadSmall(Block block, bool has_minimum, bool has_fifth_bit) {
  BlockGroup group;
  group.zero = has_minimum ? 0 : has_fifth_bit ? 16 : 8;
  group.scale = block.F16(0);
  if (has_minimum) group.minimum = block.F16(2);
  const int bits = has_minimum ? 4 : 2;
  const int halves = bits + (has_fifth_bit ? 4 : 0);
  const uint32_t fifth_bits = has_fifth_bit ? block.Word(bits) : 0;
  SetCodes(&group, [&](int k) {
    const uint32_t four = fifth_bits >> 4 * k & 15;
    const uint32_t spread = (four | four << 7 | four << 14 | four << 21) & kBits;
    return WordOfHalves(block, halves, k) | spread << 4;
  });
  return group;
}

BlockGroup ReadIq4Nl(Block block) {
  BlockGroup group;
  group.has_table = true;
  group.scale = block.F16(0);
  SetCodes(&group, [&](int k) { return WordOfHalves(block, 2, k); });
  return group;
}

BlockGroup ReadIq4Xs(Block block, int index) {
  constexpr int kScalesHigh = 2;
  constexpr int kScalesLow = 4;
  constexpr int kCodes = 8;
  const int low = block.Byte(kScalesLow + index / 2) >> 4 * (index % 2) & 15;
  const int high = block.Byte(kScalesHigh + index / 4) >> 2 * (index % 4) & 3;
  BlockGroup group;
  group.has_table = true;
  group.scale = block.F16(0);
  for (int8_t& factor : group.scale_factors) factor = static_cast<int8_t>((low | high << 4) - 32);
  SetCodes(&group, [&](int k) { return WordOfHalves(block, kCodes + 16 * index, k); });
  return group;
}

// Q2_K: two bits; scale and minimum of each 16 are the halves of a byte.
BlockGroup ReadQ2K(Block block, int index) {
  constexpr int kCodes = 16;
  constexpr int kScales = 80;
  BlockGroup group;
  group.scale = block.F16(kScales);
  group.minimum = block.NegativeF16(kScales + 2);
  for (int half = 0; half < 2; ++half) {
    const int at = 2 * index + half;
    group.scale_factors[half] = static_cast<int8_t>(block.Low(at));
    group.minimum_factors[half] = static_cast<int8_t>(block.High(at));
  }
  SetCodes(&group, [&](int k) {
    return block.Word(kCodes + index / 4 * 32 + 4 * k) >> 2 * (index % 4) & kQuarters;
  });
  return group;
}

// Q3_K: two bits, and a third whose absence takes 4 away; scales of 6 bits, 32 more than they are.
BlockGroup ReadQ3K(Block block, int index) {
  constexpr int kCodes = 32;
  constexpr int kScales = 96;
  constexpr int kScale = 108;
  BlockGroup group;
  group.zero = 4;
  group.scale = block.F16(kScale);
  for (int half = 0; half < 2; ++half) {
    const int i = 2 * index + half;
    const int low = i < 8 ? block.Low(kScales + i) : block.High(kScales + i - 8);
    const int high = block.Byte(kScales + 8 + i % 4) >> 2 * (i / 4) & 3;
    group.scale_factors[half] = static_cast<int8_t>((low | high << 4) - 32);
  }
  SetCodes(&group, [&](int k) {
    const uint32_t low = block.Word(kCodes + index / 4 * 32 + 4 * k) >> 2 * (index % 4);
    return (low & kQuarters) | (block.Word(4 * k) >> index & kBits) << 2;
  });
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

// Word k of 32 bytes from `at` on, which hold two groups: one in their low, one in their high
// halves.
uint32_t WordOfPair(Block block, int at, int index, int k) {
  return block.Word(at + index / 2 * 32 + 4 * k) >> index % 2 * 4 & kHalves;
}

BlockGroup ReadQ4K(Block block, int index) {
  constexpr int kCodes = 16;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  SetCodes(&group, [&](int k) { return WordOfPair(block, kCodes, index, k); });
  return group;
}

BlockGroup ReadQ5K(Block block, int index) {
  constexpr int kFifthBits = 16;
  constexpr int kCodes = 48;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  SetCodes(&group, [&](int k) {
    return WordOfPair(block, kCodes, index, k) | (block.Word(kFifthBits + 4 * k) >> index & kBits)
                                                     << 4;
  });
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
  group.zero = 32;
  group.scale = block.F16(kScale);
  for (int half = 0; half < 2; ++half) {
    group.scale_factors[half] = static_cast<int8_t>(block.Byte(kScales + 2 * index + half));
  }
  SetCodes(&group, [&](int k) {
    const uint32_t low = block.Word(64 * part + 32 * (column % 2) + 4 * k) >> column / 2 * 4;
    const uint32_t pairs = block.Word(kPairs + 32 * part + 4 * k) >> 2 * column;
    return (low & kHalves) | (pairs & kQuarters) << 4;
  });
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
  TANDEM_CHECK(cols % std::min(shape.inputs, kBlockGroup) == 0);
  return static_cast<size_t>((cols + shape.inputs - 1) / shape.inputs) * shape.bytes;
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
