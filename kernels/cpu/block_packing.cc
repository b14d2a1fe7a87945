#include "kernels/cpu/block_packing.h"

#include <cstring>

#include "kernels/block_reading.h"
#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"

namespace tandem {
namespace {

static_assert(kGroupOfBlock == kBlockGroup);

constexpr int kWordBytes = 4;

// The words of one output of a group, kStepBytes from each to the next.
inline void PlaceNumbers(const BlockGroup& group, const BlockLayout& layout, std::byte* out) {
  uint32_t codes[kGroupOfBlock / 4];  // four each, in increasing input
  std::memcpy(codes, group.codes, sizeof(codes));
  uint32_t words[8] = {};  // as many as layout.bits
  if (layout.bits == 8) {
    std::memcpy(words, codes, sizeof(words));
  } else {
    constexpr uint32_t kHalves = 0x0F0F0F0F;
    for (int k = 0; k < 8; k += 2) {
      words[k / 2] = (codes[k] & kHalves) | (codes[k + 1] & kHalves) << 4;
    }
    // What is above four bits.
    for (int k = 0; k < 8; ++k) {
      const uint32_t rest = codes[k] >> 4 & kHalves;
      if (layout.bits == 5) words[4] |= rest << k;
      if (layout.bits == 6) words[4 + k / 4] |= rest << 2 * (k % 4);
    }
  }
  for (int word = 0; word < layout.bits; ++word) {
    std::memcpy(out + word * kStepBytes, &words[word], kWordBytes);
  }
}

void PlaceF16(uint16_t value, int lane, std::byte* out) {
  std::memcpy(out + lane * sizeof(value), &value, sizeof(value));
}

// A group's scales or minimums of one output: those that stand in the group.
inline void PlaceScales(uint16_t common, const int8_t* factors, const BlockLayout& layout, int lane,
                        std::byte* out) {
  if (layout.scales == BlockScales::kF16) return PlaceF16(common, lane, out);
  for (int half = 0; half < layout.halves(); ++half) {
    out[half * kPanelOutputs + lane] = static_cast<std::byte>(factors[half]);
  }
}

// PackBlockPanel of one format: its dispatch is done once a panel, not once a group.
template <DType kDType>
void PackPanelOf(const std::byte* const* rows, int inputs, std::byte* out) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kDType);
  constexpr int kPartBytes = kPanelOutputs * sizeof(uint16_t);  // of a head
  const BlockShape shape = BlockShapeOf(kDType);
  const int groups_of_block = shape.inputs / kBlockGroup;
  const int groups = inputs / kBlockGroup;
  for (int g = 0; g < groups; ++g) {
    std::byte* const head = out;
    const bool begins_unit = kLayout.head_bytes() > 0 && g % kLayout.unit_groups() == 0;
    if (begins_unit) out += kLayout.head_bytes();
    const size_t block = static_cast<size_t>(g / groups_of_block) * shape.bytes;
    const int index = g % groups_of_block;
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      BlockGroup group;
      if (rows[lane] != nullptr) {
        group = block_reading::ReadGroup<kDType>(block_reading::Block(rows[lane] + block), index);
      }
      if (begins_unit) {
        PlaceF16(group.scale, lane, head);
        if (kLayout.has_minimums) PlaceF16(group.minimum, lane, head + kPartBytes);
      }
      PlaceNumbers(group, kLayout, out + lane * kWordBytes);
      std::byte* const scales = out + kLayout.number_bytes();
      PlaceScales(group.scale, group.scale_factors, kLayout, lane, scales);
      if (kLayout.has_minimums) {
        PlaceScales(group.minimum, group.minimum_factors, kLayout, lane,
                    scales + kLayout.scale_bytes());
      }
    }
    out += kLayout.group_bytes();
  }
}

}  // namespace

void PackBlockPanel(const std::byte* const* rows, DType dtype, int inputs, std::byte* out) {
  WithBlockFormat(dtype, [&]<DType kDType>() { PackPanelOf<kDType>(rows, inputs, out); });
}

}  // namespace tandem
