#include "kernels/cpu/block_packing.h"

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"

namespace tandem {
namespace {

static_assert(kGroupOfBlock == kBlockGroup);

constexpr int kWordBytes = 4;

// The bits that panels hold of a number.
int BitsOfNumber(int number, const BlockLayout& layout) {
  if (!layout.has_table) return number + layout.zero;
  for (int index = 0; index < 16; ++index) {
    if (kIq4Numbers[index] == number) return index;
  }
  return 0;  // of an output that does not exist
}

// The words of one output of a group, 256 bytes from each to the next.
void PlaceNumbers(const BlockGroup& group, const BlockLayout& layout, std::byte* out) {
  uint8_t words[8][kWordBytes] = {};  // as many as layout.bits
  for (int i = 0; i < kBlockGroup; ++i) {
    const int bits = BitsOfNumber(group.numbers[i], layout);
    const int step = i / 4;
    const int byte = i % 4;
    if (layout.bits == 8) {
      words[step][byte] = static_cast<uint8_t>(bits);
      continue;
    }
    words[step / 2][byte] |= static_cast<uint8_t>((bits & 15) << step % 2 * 4);
    if (layout.bits == 5) words[4][byte] |= static_cast<uint8_t>((bits >> 4) << step);
    if (layout.bits == 6) {
      words[4 + step / 4][byte] |= static_cast<uint8_t>((bits >> 4) << step % 4 * 2);
    }
  }
  for (int word = 0; word < layout.bits; ++word) {
    std::memcpy(out + word * kStepBytes, words[word], kWordBytes);
  }
}

// A group's scales or minimums of one output: those that stand in the group.
void PlaceScales(uint16_t common, const int8_t* factors, BlockScales scales, int lane,
                 std::byte* out) {
  if (scales == BlockScales::kF16) {
    std::memcpy(out + lane * sizeof(common), &common, sizeof(common));
    return;
  }
  const int halves = scales == BlockScales::kHalfFactors ? 2 : 1;
  for (int half = 0; half < halves; ++half) {
    out[half * kPanelOutputs + lane] = static_cast<std::byte>(factors[half]);
  }
}

void PlaceCommonScale(uint16_t common, int lane, std::byte* out) {
  std::memcpy(out + lane * sizeof(common), &common, sizeof(common));
}

}  // namespace

void PackBlockPanel(const std::byte* const* rows, DType dtype, int inputs, std::byte* out) {
  const BlockLayout layout = BlockLayoutOf(dtype);
  const int groups = inputs / kBlockGroup;
  constexpr int kPartBytes = kPanelOutputs * sizeof(uint16_t);  // of a head
  for (int g = 0; g < groups; ++g) {
    std::byte* const head = out;
    const bool begins_unit = layout.head_bytes() > 0 && g % layout.unit_groups() == 0;
    if (begins_unit) out += layout.head_bytes();
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      const BlockGroup group =
          rows[lane] == nullptr ? BlockGroup{} : ReadBlockGroup(rows[lane], dtype, g);
      if (begins_unit) {
        PlaceCommonScale(group.scale, lane, head);
        if (layout.has_minimums) PlaceCommonScale(group.minimum, lane, head + kPartBytes);
      }
      PlaceNumbers(group, layout, out + lane * kWordBytes);
      std::byte* const scales = out + layout.number_bytes();
      PlaceScales(group.scale, group.scale_factors, layout.scales, lane, scales);
      if (layout.has_minimums) {
        PlaceScales(group.minimum, group.minimum_factors, layout.scales, lane,
                    scales + layout.scale_bytes());
      }
    }
    out += layout.group_bytes();
  }
}

}  // namespace tandem
