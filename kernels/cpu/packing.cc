#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/block_packing.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/quantize.h"

namespace tandem {
namespace {

// A step of an output is a word: one f32, or two inputs of 16 bits.
constexpr size_t kWordBytes = 4;

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
    : parts_(parts), order_(order), dtype_(dtype) {
  TANDEM_CHECK(!parts.empty());
  const ConstMatrixView& first = parts[0].matrix;
  source_ = first.dtype;
  num_inputs_ = first.cols;
  shape_ = PanelShapeOf(dtype, num_inputs_);
  TANDEM_CHECK(source_ == dtype || IsBlocks(dtype));
  for (const WeightPart& part : parts) {
    TANDEM_CHECK(part.matrix.dtype == source_ && part.matrix.cols == first.cols);
    num_outputs_ += part.matrix.rows;
  }
  if (order == PartOrder::kGateAndUp) {
    TANDEM_CHECK(parts.size() == 2 && parts[1].matrix.rows == first.rows);
    num_panels_ = 2 * ((first.rows + kPanelOutputs - 1) / kPanelOutputs);
  } else {
    num_panels_ = (num_outputs_ + kPanelOutputs - 1) / kPanelOutputs;
  }
}

bool PanelLayout::has_bias() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const WeightPart& part) { return part.bias != nullptr; });
}

PanelLayout::Source PanelLayout::SourceOf(int panel, int lane) const {
  size_t part = 0;
  int row = panel * kPanelOutputs + lane;
  if (order_ == PartOrder::kGateAndUp) {
    part = panel % 2;
    row = panel / 2 * kPanelOutputs + lane;
    if (row >= parts_[part].matrix.rows) return {};
  } else {
    while (part < parts_.size() && row >= parts_[part].matrix.rows) {
      row -= parts_[part++].matrix.rows;
    }
    if (part == parts_.size()) return {};
  }
  const WeightPart& from = parts_[part];
  return {&from.matrix, row, from.bias == nullptr ? nullptr : from.bias + row};
}

void PanelLayout::PackPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  if (IsBlocks(dtype_)) {
    PackPanelOfBlocks(panel, out);
  } else {
    PackFloatPanel(panel, kernels, out);
  }
}

void PanelLayout::PackFloatPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  const size_t bytes = num_inputs_ * SizeOf(dtype_);
  const std::byte* outputs[kPanelOutputs];
  const std::byte* zeros = nullptr;
  std::unique_ptr<std::byte[]> zero_storage;
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const Source source = SourceOf(panel, lane);
    if (source.matrix != nullptr) {
      outputs[lane] = static_cast<const std::byte*>(source.matrix->data) +
                      source.row * RowBytes(dtype_, source.matrix->stride);
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
    const Source source = SourceOf(panel, lane);
    if (source.matrix == nullptr) continue;
    rows[lane] = BlockRow(*source.matrix, source.row, dtype_, &storage[lane]);
  }
  PackBlockPanel(rows, dtype_, num_inputs_, out);
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const float* bias = SourceOf(panel, lane).bias;
    out[lane] = bias == nullptr ? 0.0f : *bias;
  }
}

}  // namespace tandem
