#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernels/block_reading.h"
#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/quantize.h"

namespace tandem {
namespace {

static_assert(kGroupOfBlock == kBlockGroup);

// The bytes of one output in a step: one f32 input, or two 16-bit inputs.
constexpr int kWordBytes = 4;

// The groups of which all outputs are transposed at once: those of a unit with factors.
constexpr int kSliceGroups = kSuperBlockGroups;

// Writes the words of one output of a group.   out: [layout.bits]
inline void PlaceNumbers(const BlockGroup& group, const BlockLayout& layout, uint32_t* out) {
  using block_reading::kHalves;
  using block_reading::Words;
  Words codes[2];  // in increasing input
  std::memcpy(codes, group.codes, sizeof(codes));
  if (layout.bits == 8) {
    std::memcpy(out, codes, sizeof(codes));
    return;
  }
  const Words even = __builtin_shufflevector(codes[0], codes[1], 0, 2, 4, 6);
  const Words odd = __builtin_shufflevector(codes[0], codes[1], 1, 3, 5, 7);
  const Words low = (even & kHalves) | (odd & kHalves) << 4;
  std::memcpy(out, &low, sizeof(low));
  // The upper bits, above the lowest four. Ors the four words of a vector, shifted by 0 to 3 times
  // `bits`.
  const auto joined = [](Words words, int bits) {
    words |= __builtin_shufflevector(words, words, 1, 1, 3, 3) << bits;
    return words[0] | words[2] << 2 * bits;
  };
  const Words upper[2] = {codes[0] >> 4 & kHalves, codes[1] >> 4 & kHalves};
  if (layout.bits == 5) out[4] = joined(upper[0] | upper[1] << 4, 1);
  if (layout.bits == 6) {
    out[4] = joined(upper[0], 2);
    out[5] = joined(upper[1], 2);
  }
}

void PlaceF16(uint16_t value, int lane, std::byte* out) {
  std::memcpy(out + lane * sizeof(value), &value, sizeof(value));
}

// Writes a group's scales or minimums for one output.
inline void PlaceScales(uint16_t common, const int8_t* factors, const BlockLayout& layout, int lane,
                        std::byte* out) {
  if (layout.scales == BlockScales::kF16) return PlaceF16(common, lane, out);
  for (int half = 0; half < layout.halves(); ++half) {
    out[half * kPanelOutputs + lane] = static_cast<std::byte>(factors[half]);
  }
}

// Writes a panel (block_layout.h) from 64 rows of blocks. A row is null for padding. Reads a slice
// of each row at once, because 64 rows a page apart are more streams than the hardware prefetches.
template <DType kDType>
void PackPanelOf(const std::byte* const* rows, int inputs, const CpuKernels& kernels,
                 std::byte* out) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kDType);
  constexpr int kPartBytes = kPanelOutputs * sizeof(uint16_t);  // of a unit's head
  constexpr int kLineWords = 16;                                // transposed fast
  constexpr int kSliceWords =
      (kSliceGroups * kLayout.bits + kLineWords - 1) / kLineWords * kLineWords;
  constexpr int kGroupsOfBlock = kLayout.scales == BlockScales::kF16 ? 1 : kSuperBlockGroups;
  static_assert(kSliceGroups % kGroupsOfBlock == 0 && kSliceGroups % kLayout.unit_groups() == 0);
  const BlockShape shape = BlockShapeOf(kDType);
  TANDEM_CHECK(shape.inputs == kGroupsOfBlock * kBlockGroup);
  const int slice_bytes = kSliceGroups / kGroupsOfBlock * shape.bytes;  // of a row
  alignas(64) uint32_t words[kPanelOutputs][kSliceWords] = {};
  alignas(64) std::byte steps[kSliceWords * kStepBytes];
  const std::byte* outputs[kPanelOutputs];
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    outputs[lane] = reinterpret_cast<const std::byte*>(words[lane]);
  }
  const int groups = inputs / kBlockGroup;
  for (int first = 0; first < groups; first += kSliceGroups) {
    const int count = std::min(kSliceGroups, groups - first);
    const size_t slice = static_cast<size_t>(first / kGroupsOfBlock) * shape.bytes;
    std::byte* const head = out;
    out += kLayout.head_bytes();
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      const std::byte* const row = rows[lane] == nullptr ? nullptr : rows[lane] + slice;
      for (int at = 0; row != nullptr && at < slice_bytes; at += 64) {
        __builtin_prefetch(row + slice_bytes + at);
      }
      for (int g = 0; g < count; ++g) {
        const BlockGroup group =
            row == nullptr ? BlockGroup()
                           : block_reading::ReadGroup<kDType>(
                                 block_reading::Block(row + g / kGroupsOfBlock * shape.bytes),
                                 g % kGroupsOfBlock);
        if (kLayout.head_bytes() > 0 && g == 0) {
          PlaceF16(group.scale, lane, head);
          if (kLayout.has_minimums) PlaceF16(group.minimum, lane, head + kPartBytes);
        }
        PlaceNumbers(group, kLayout, words[lane] + g * kLayout.bits);
        std::byte* const scales = out + g * kLayout.group_bytes() + kLayout.number_bytes();
        PlaceScales(group.scale, group.scale_factors, kLayout, lane, scales);
        if (kLayout.has_minimums) {
          PlaceScales(group.minimum, group.minimum_factors, kLayout, lane,
                      scales + kLayout.scale_bytes());
        }
      }
    }
    kernels.transpose_outputs(outputs, kSliceWords, steps);
    for (int g = 0; g < count; ++g, out += kLayout.group_bytes()) {
      std::memcpy(out, steps + g * kLayout.number_bytes(), kLayout.number_bytes());
    }
  }
}

}  // namespace

PanelShape PanelShapeOf(DType dtype, int inputs) {
  PanelShape shape;
  if (IsBlocks(dtype)) {
    return {inputs / kGroupOfBlock, BlockLayoutOf(dtype).panel_bytes(inputs)};
  }
  const int inputs_per_step = static_cast<int>(kWordBytes / SizeOf(dtype));
  shape.num_steps = (inputs + inputs_per_step - 1) / inputs_per_step;
  shape.bytes = static_cast<size_t>(shape.num_steps) * kStepBytes;
  return shape;
}

PanelLayout::PanelLayout(absl::Span<const WeightPart> parts, PartOrder order, DType dtype)
    : OutputOrder(parts, order, kPanelOutputs),
      dtype_(dtype),
      shape_(PanelShapeOf(dtype, num_inputs())) {
  TANDEM_CHECK(first().dtype == dtype || IsBlocks(dtype));
}

void PanelLayout::PackPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  if (IsBlocks(dtype_)) {
    PackPanelOfBlocks(panel, kernels, out);
  } else {
    PackFloatPanel(panel, kernels, out);
  }
}

void PanelLayout::PackFloatPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  const size_t bytes = num_inputs() * SizeOf(dtype_);
  const std::byte* outputs[kPanelOutputs];
  const std::byte* zeros = nullptr;
  std::unique_ptr<std::byte[]> zero_storage;
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const Source source = SourceOf(panel * kPanelOutputs + lane);
    if (source.part != nullptr) {
      const ConstMatrixView& matrix = source.part->matrix;
      outputs[lane] =
          static_cast<const std::byte*>(matrix.data) + source.row * RowBytes(dtype_, matrix.stride);
      continue;
    }
    if (zeros == nullptr) {
      zero_storage = std::make_unique<std::byte[]>(bytes);
      zeros = zero_storage.get();
    }
    outputs[lane] = zeros;
  }
  kernels.transpose_outputs(outputs, static_cast<int>(bytes / kWordBytes), out);
  if (const size_t rest = bytes % kWordBytes; rest != 0) {
    std::byte* step = out + (shape_.num_steps - 1) * static_cast<size_t>(kStepBytes);
    std::memset(step, 0, kStepBytes);
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(step + lane * kWordBytes, outputs[lane] + bytes - rest, rest);
    }
  }
}

void PanelLayout::PackPanelOfBlocks(int panel, const CpuKernels& kernels, std::byte* out) const {
  std::vector<std::byte> storage[kPanelOutputs];
  const std::byte* rows[kPanelOutputs] = {};
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const Source source = SourceOf(panel * kPanelOutputs + lane);
    if (source.part == nullptr) continue;
    rows[lane] = BlockRow(source.part->matrix, source.row, dtype_, &storage[lane]);
  }
  // Dispatches by format once for each panel, not for each group.
  WithBlockFormat(dtype_,
                  [&]<DType kDType>() { PackPanelOf<kDType>(rows, num_inputs(), kernels, out); });
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    out[lane] = SourceOf(panel * kPanelOutputs + lane).bias();
  }
}

}  // namespace tandem
