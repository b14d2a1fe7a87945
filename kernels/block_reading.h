// ReadBlockGroup for formats that are known at compile time, for code that reads whole models. The
// layouts are those of GGUF's specification (ggml, docs/gguf.md and the types it names).
#ifndef TANDEM_KERNELS_BLOCK_READING_H_
#define TANDEM_KERNELS_BLOCK_READING_H_

#include <cstring>

#include "base/check.h"
#include "kernels/blocks.h"

namespace tandem {

// Calls function.operator()<dtype>().   REQUIRES: IsBlocks(dtype)
template <typename Function>
auto WithBlockFormat(DType dtype, Function function) {
  switch (dtype) {
    case DType::kQ8_0:
      return function.template operator()<DType::kQ8_0>();
    case DType::kQ4_0:
      return function.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return function.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return function.template operator()<DType::kQ5_0>();
    case DType::kQ5_1:
      return function.template operator()<DType::kQ5_1>();
    case DType::kQ2K:
      return function.template operator()<DType::kQ2K>();
    case DType::kQ3K:
      return function.template operator()<DType::kQ3K>();
    case DType::kQ4K:
      return function.template operator()<DType::kQ4K>();
    case DType::kQ5K:
      return function.template operator()<DType::kQ5K>();
    case DType::kQ6K:
      return function.template operator()<DType::kQ6K>();
    case DType::kIq4Nl:
      return function.template operator()<DType::kIq4Nl>();
    case DType::kIq4Xs:
      return function.template operator()<DType::kIq4Xs>();
    default:
      TANDEM_CHECK(false);
  }
}

}  // namespace tandem

namespace tandem::block_reading {

// Masks of the lowest bit, the lowest two bits and the low half of each byte of a word.
inline constexpr uint32_t kBits = 0x01010101;
inline constexpr uint32_t kQuarters = 0x03030303;
inline constexpr uint32_t kHalves = 0x0F0F0F0F;

// Four words of four bytes. Operators apply to each word; all of a group's codes are two such
// vectors, of which no word must be stored alone, because a vector cannot be loaded from words
// stored just before.
using Words = uint32_t __attribute__((vector_size(16)));

// The bytes of a block.
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
  Words WordsAt(int at) const {
    Words words;
    std::memcpy(&words, bytes_ + at, sizeof(words));
    return words;
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

// Sets a group's codes: codes_of(half) returns those of 16 inputs, in their order.
template <typename CodesOf>
void SetCodes(BlockGroup* group, CodesOf codes_of) {
  for (int half = 0; half < 2; ++half) {
    const Words codes = codes_of(half);
    std::memcpy(group->codes + half * sizeof(codes), &codes, sizeof(codes));
  }
}

// The codes of half a group, if the 16 bytes at `at` hold those of the first half in their low
// halves and those of the second in their high halves.
inline Words CodesOfHalves(Block block, int at, int half) {
  return block.WordsAt(at) >> half * 4 & kHalves;
}

inline BlockGroup ReadQ8_0(Block block) {
  BlockGroup group;
  group.zero = 128;
  group.scale = block.F16(0);
  SetCodes(&group, [&](int half) { return block.WordsAt(2 + 16 * half) ^ 0x80808080; });
  return group;
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, a minimum (if any), the fifth bits of the codes (if any), and
// their low four bits.
inline BlockGroup ReadSmall(Block block, bool has_minimum, bool has_fifth_bit) {
  BlockGroup group;
  group.zero = has_minimum ? 0 : has_fifth_bit ? 16 : 8;
  group.scale = block.F16(0);
  if (has_minimum) group.minimum = block.F16(2);
  const int bits = has_minimum ? 4 : 2;
  const int halves = bits + (has_fifth_bit ? 4 : 0);
  const uint32_t fifth_bits = has_fifth_bit ? block.Word(bits) : 0;
  SetCodes(&group, [&](int half) {
    const uint32_t bits16 = fifth_bits >> 16 * half;
    const Words four = Words{bits16, bits16 >> 4, bits16 >> 8, bits16 >> 12} & 15;
    const Words spread = (four | four << 7 | four << 14 | four << 21) & kBits;
    return CodesOfHalves(block, halves, half) | spread << 4;
  });
  return group;
}

inline BlockGroup ReadIq4Nl(Block block) {
  BlockGroup group;
  group.has_table = true;
  group.scale = block.F16(0);
  SetCodes(&group, [&](int half) { return CodesOfHalves(block, 2, half); });
  return group;
}

inline BlockGroup ReadIq4Xs(Block block, int index) {
  constexpr int kScalesHigh = 2;
  constexpr int kScalesLow = 4;
  constexpr int kCodes = 8;
  const int low = block.Byte(kScalesLow + index / 2) >> 4 * (index % 2) & 15;
  const int high = block.Byte(kScalesHigh + index / 4) >> 2 * (index % 4) & 3;
  BlockGroup group;
  group.has_table = true;
  group.scale = block.F16(0);
  for (int8_t& factor : group.scale_factors) factor = static_cast<int8_t>((low | high << 4) - 32);
  SetCodes(&group, [&](int half) { return CodesOfHalves(block, kCodes + 16 * index, half); });
  return group;
}

// Q2_K: codes of two bits. The two halves of a byte are the scale and the minimum of 16 weights.
inline BlockGroup ReadQ2K(Block block, int index) {
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
  SetCodes(&group, [&](int half) {
    return block.WordsAt(kCodes + index / 4 * 32 + 16 * half) >> 2 * (index % 4) & kQuarters;
  });
  return group;
}

// Q3_K: two bits, and a separate third one; the code is 4 more than the number. The scales have 6
// bits and are stored plus 32.
inline BlockGroup ReadQ3K(Block block, int index) {
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
  SetCodes(&group, [&](int half) {
    const Words low = block.WordsAt(kCodes + index / 4 * 32 + 16 * half) >> 2 * (index % 4);
    return (low & kQuarters) | (block.WordsAt(16 * half) >> index & kBits) << 2;
  });
  return group;
}

// Reads a group's scale and minimum, of 6 bits each. Bytes 4 to 15 of a block of Q4_K or Q5_K hold
// those of its 8 groups.
inline void ReadScalesOfK(Block block, int index, BlockGroup* group) {
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

// The codes of half of group `index`. Each 32 bytes from `at` on hold two groups: one in the low
// halves of the bytes, one in the high halves.
inline Words CodesOfPair(Block block, int at, int index, int half) {
  return block.WordsAt(at + index / 2 * 32 + 16 * half) >> index % 2 * 4 & kHalves;
}

inline BlockGroup ReadQ4K(Block block, int index) {
  constexpr int kCodes = 16;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  SetCodes(&group, [&](int half) { return CodesOfPair(block, kCodes, index, half); });
  return group;
}

inline BlockGroup ReadQ5K(Block block, int index) {
  constexpr int kFifthBits = 16;
  constexpr int kCodes = 48;
  BlockGroup group;
  ReadScalesOfK(block, index, &group);
  SetCodes(&group, [&](int half) {
    const Words fifth_bits = block.WordsAt(kFifthBits + 16 * half) >> index & kBits;
    return CodesOfPair(block, kCodes, index, half) | fifth_bits << 4;
  });
  return group;
}

// Q6_K: each 128 weights have 64 bytes of low halves (4 bits each) and 32 bytes of upper bits (2
// bits each).
inline BlockGroup ReadQ6K(Block block, int index) {
  constexpr int kPairs = 128;
  constexpr int kScales = 192;
  constexpr int kScale = 208;
  const int part = index / 4;    // of 128 weights
  const int column = index % 4;  // of 32 weights within the part
  BlockGroup group;
  group.zero = 32;
  group.scale = block.F16(kScale);
  for (int half = 0; half < 2; ++half) {
    group.scale_factors[half] = static_cast<int8_t>(block.Byte(kScales + 2 * index + half));
  }
  SetCodes(&group, [&](int half) {
    const Words low = block.WordsAt(64 * part + 32 * (column % 2) + 16 * half) >> column / 2 * 4;
    const Words pairs = block.WordsAt(kPairs + 32 * part + 16 * half) >> 2 * column;
    return (low & kHalves) | (pairs & kQuarters) << 4;
  });
  return group;
}

// Reads group `index` of the block.
template <DType kDType>
inline BlockGroup ReadGroup(Block block, int index) {
  if constexpr (kDType == DType::kQ8_0) return ReadQ8_0(block);
  if constexpr (kDType == DType::kQ4_0) return ReadSmall(block, false, false);
  if constexpr (kDType == DType::kQ4_1) return ReadSmall(block, true, false);
  if constexpr (kDType == DType::kQ5_0) return ReadSmall(block, false, true);
  if constexpr (kDType == DType::kQ5_1) return ReadSmall(block, true, true);
  if constexpr (kDType == DType::kQ2K) return ReadQ2K(block, index);
  if constexpr (kDType == DType::kQ3K) return ReadQ3K(block, index);
  if constexpr (kDType == DType::kQ4K) return ReadQ4K(block, index);
  if constexpr (kDType == DType::kQ5K) return ReadQ5K(block, index);
  if constexpr (kDType == DType::kQ6K) return ReadQ6K(block, index);
  if constexpr (kDType == DType::kIq4Nl) return ReadIq4Nl(block);
  if constexpr (kDType == DType::kIq4Xs) return ReadIq4Xs(block, index);
}

}  // namespace tandem::block_reading

#endif  // TANDEM_KERNELS_BLOCK_READING_H_
