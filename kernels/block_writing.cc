// Writes blocks: the inverse of ReadBlockGroup.
#include <cstring>

#include "base/check.h"
#include "kernels/blocks.h"

namespace tandem {
namespace {

// Writes the bytes of a block, which starts as zeros. Each field may be set only once.
class BlockWriter {
 public:
  BlockWriter(std::byte* bytes, DType dtype) : bytes_(bytes) {
    std::memset(bytes, 0, BlockShapeOf(dtype).bytes);
  }

  void Set(int at, int shift, int value) { bytes_[at] |= static_cast<std::byte>(value << shift); }
  void SetF16(int at, uint16_t bits) { std::memcpy(bytes_ + at, &bits, sizeof(bits)); }
  // K formats store the minimum without its sign.
  void SetNegativeF16(int at, uint16_t bits) { SetF16(at, bits ^ 0x8000); }

  // Writes the low four bits of the codes as the halves of the 16 bytes at `at`.
  void SetHalves(int at, const BlockGroup& group) {
    constexpr int kHalf = kBlockGroup / 2;
    for (int i = 0; i < kHalf; ++i) {
      bytes_[at + i] = static_cast<std::byte>((group.codes[i] & 15) | group.codes[i + kHalf] << 4);
    }
  }
  // Writes the fifth bits of the codes, one after the other.
  void SetFifthBits(int at, const BlockGroup& group) {
    uint32_t bits = 0;
    for (int i = 0; i < kBlockGroup; ++i) bits |= uint32_t{group.codes[i]} >> 4 << i;
    std::memcpy(bytes_ + at, &bits, sizeof(bits));
  }
  // Writes the codes with bit 7 flipped, one byte each.
  void SetSigned(int at, const BlockGroup& group) {
    for (int i = 0; i < kBlockGroup; ++i) {
      bytes_[at + i] = static_cast<std::byte>(group.codes[i] ^ 0x80);
    }
  }
  // Writes bits [from, from + bits) of every code, shifted left by `shift`, into a byte each.
  void SetBytes(int at, int shift, const BlockGroup& group, int from, int bits) {
    for (int i = 0; i < kBlockGroup; ++i) {
      Set(at + i, shift, group.codes[i] >> from & ((1 << bits) - 1));
    }
  }

 private:
  std::byte* bytes_;
};

void WriteQ8_0(const BlockGroup& group, BlockWriter* out) {
  out->SetF16(0, group.scale);
  out->SetSigned(2, group);
}

void WriteSmall(const BlockGroup& group, bool has_minimum, bool has_fifth_bit, BlockWriter* out) {
  out->SetF16(0, group.scale);
  if (has_minimum) out->SetF16(2, group.minimum);
  const int bits = has_minimum ? 4 : 2;
  if (has_fifth_bit) out->SetFifthBits(bits, group);
  out->SetHalves(bits + (has_fifth_bit ? 4 : 0), group);
}

void WriteIq4Nl(const BlockGroup& group, BlockWriter* out) {
  out->SetF16(0, group.scale);
  out->SetHalves(2, group);
}

void WriteIq4Xs(const BlockGroup& group, int index, BlockWriter* out) {
  const int factor = group.scale_factors[0] + 32;
  out->SetF16(0, group.scale);
  out->Set(4 + index / 2, 4 * (index % 2), factor & 15);
  out->Set(2 + index / 4, 2 * (index % 4), factor >> 4);
  out->SetHalves(8 + 16 * index, group);
}

void WriteQ2K(const BlockGroup& group, int index, BlockWriter* out) {
  out->SetF16(80, group.scale);
  out->SetNegativeF16(82, group.minimum);
  for (int half = 0; half < 2; ++half) {
    out->Set(2 * index + half, 0, group.scale_factors[half]);
    out->Set(2 * index + half, 4, group.minimum_factors[half]);
  }
  out->SetBytes(16 + index / 4 * 32, 2 * (index % 4), group, 0, 2);
}

void WriteQ3K(const BlockGroup& group, int index, BlockWriter* out) {
  out->SetF16(108, group.scale);
  for (int half = 0; half < 2; ++half) {
    const int i = 2 * index + half;
    const int factor = group.scale_factors[half] + 32;
    out->Set(96 + i % 8, i / 8 * 4, factor & 15);
    out->Set(104 + i % 4, i / 4 * 2, factor >> 4);
  }
  out->SetBytes(32 + index / 4 * 32, 2 * (index % 4), group, 0, 2);
  out->SetBytes(0, index, group, 2, 1);
}

void WriteScalesOfK(const BlockGroup& group, int index, BlockWriter* out) {
  constexpr int kScales = 4;
  // Both are from 0 to 63.
  const int scale = static_cast<uint8_t>(group.scale_factors[0]);
  const int minimum = static_cast<uint8_t>(group.minimum_factors[0]);
  out->SetF16(0, group.scale);
  out->SetNegativeF16(2, group.minimum);
  if (index < 4) {
    out->Set(kScales + index, 0, scale);
    out->Set(kScales + 4 + index, 0, minimum);
    return;
  }
  out->Set(kScales + 4 + index, 0, scale & 15);
  out->Set(kScales + 4 + index, 4, minimum & 15);
  out->Set(kScales + index - 4, 6, scale >> 4);
  out->Set(kScales + index, 6, minimum >> 4);
}

void WriteQ4K(const BlockGroup& group, int index, BlockWriter* out) {
  WriteScalesOfK(group, index, out);
  out->SetBytes(16 + index / 2 * 32, index % 2 * 4, group, 0, 4);
}

void WriteQ5K(const BlockGroup& group, int index, BlockWriter* out) {
  WriteScalesOfK(group, index, out);
  out->SetBytes(16, index, group, 4, 1);
  out->SetBytes(48 + index / 2 * 32, index % 2 * 4, group, 0, 4);
}

void WriteQ6K(const BlockGroup& group, int index, BlockWriter* out) {
  const int part = index / 4;    // of 128 weights
  const int column = index % 4;  // of 32 weights within the part
  out->SetF16(208, group.scale);
  for (int half = 0; half < 2; ++half) {
    out->Set(192 + 2 * index + half, 0, static_cast<uint8_t>(group.scale_factors[half]));
  }
  out->SetBytes(64 * part + 32 * (column % 2), column / 2 * 4, group, 0, 4);
  out->SetBytes(128 + 32 * part, 2 * column, group, 4, 2);
}

void WriteGroup(const BlockGroup& group, DType dtype, int index, BlockWriter* out) {
  switch (dtype) {
    case DType::kQ8_0:
      return WriteQ8_0(group, out);
    case DType::kQ4_0:
      return WriteSmall(group, false, false, out);
    case DType::kQ4_1:
      return WriteSmall(group, true, false, out);
    case DType::kQ5_0:
      return WriteSmall(group, false, true, out);
    case DType::kQ5_1:
      return WriteSmall(group, true, true, out);
    case DType::kQ2K:
      return WriteQ2K(group, index, out);
    case DType::kQ3K:
      return WriteQ3K(group, index, out);
    case DType::kQ4K:
      return WriteQ4K(group, index, out);
    case DType::kQ5K:
      return WriteQ5K(group, index, out);
    case DType::kQ6K:
      return WriteQ6K(group, index, out);
    case DType::kIq4Nl:
      return WriteIq4Nl(group, out);
    case DType::kIq4Xs:
      return WriteIq4Xs(group, index, out);
    default:
      TANDEM_CHECK(false);
  }
}

}  // namespace

void WriteBlock(absl::Span<const BlockGroup> groups, DType dtype, std::byte* out) {
  TANDEM_CHECK(static_cast<int>(groups.size()) * kBlockGroup == BlockShapeOf(dtype).inputs);
  BlockWriter writer(out, dtype);
  int index = 0;
  for (const BlockGroup& group : groups) WriteGroup(group, dtype, index++, &writer);
}

}  // namespace tandem
