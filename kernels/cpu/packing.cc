#include "kernels/cpu/packing.h"

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

// Writes the words of one output of a group, which are kStepBytes apart.
inline void PlaceNumbers(const BlockGroup& group, const BlockLayout& layout, std::byte* out) {
  uint32_t codes[kGroupOfBlock / 4];  // four codes each, in increasing input
  std::memcpy(codes, group.codes, sizeof(codes));
  uint32_t words[8] = {};  // layout.bits words are used
  if (layout.bits == 8) {
    std::memcpy(words, codes, sizeof(words));
  } else {
    constexpr uint32_t kHalves = 0x0F0F0F0F;
    for (int k = 0; k < 8; k += 2) {
      words[k / 2] = (codes[k] & kHalves) | (codes[k + 1] & kHalves) << 4;
    }
    // The upper bits, above the lowest four.
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

// Writes a group's scales or minimums for one output.
inline void PlaceScales(uint16_t common, const int8_t* factors, const BlockLayout& layout, int lane,
                        std::byte* out) {
  if (layout.scales == BlockScales::kF16) return PlaceF16(common, lane, out);
  for (int half = 0; half < layout.halves(); ++half) {
    out[half * kPanelOutputs + lane] = static_cast<std::byte>(factors[half]);
  }
}

// Writes a panel (block_layout.h) from 64 rows of blocks. A row is null for padding.
template <DType kDType>
void PackPanelOf(const std::byte* const* rows, int inputs, std::byte* out) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kDType);
  constexpr int kPartBytes = kPanelOutputs * sizeof(uint16_t);  // of a unit's head
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
    PackPanelOfBlocks(panel, out);
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

void PanelLayout::PackPanelOfBlocks(int panel, std::byte* out) const {
  std::vector<std::byte> storage[kPanelOutputs];
  const std::byte* rows[kPanelOutputs] = {};
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const Source source = SourceOf(panel * kPanelOutputs + lane);
    if (source.part == nullptr) continue;
    rows[lane] = BlockRow(source.part->matrix, source.row, dtype_, &storage[lane]);
  }
  // Dispatches by format once for each panel, not for each group.
  WithBlockFormat(dtype_, [&]<DType kDType>() { PackPanelOf<kDType>(rows, num_inputs(), out); });
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    out[lane] = SourceOf(panel * kPanelOutputs + lane).bias();
  }
}

}  // namespace tandem
