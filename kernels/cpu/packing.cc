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
#include "kernels/widen_row.h"

namespace tandem {
namespace {

static_assert(kGroupInputs == kQuantizationGroup);

// A step of an output is a word: one f32, or two inputs of 16 bits.
constexpr size_t kWordBytes = 4;

}  // namespace

PanelShape PanelShapeOf(DType dtype, int inputs) {
  PanelShape shape;
  if (IsBlocks(dtype)) {
    return {inputs / kGroupOfBlock, BlockLayoutOf(dtype).panel_bytes(inputs)};
  }
  if (IsQuantized(dtype)) {
    const int groups = QuantizationGroups(inputs);
    const int steps = dtype == DType::kInt8 ? kInt8GroupSteps : kInt4GroupSteps;
    shape.num_steps = groups * steps;
    shape.bytes = static_cast<size_t>(groups) * (steps + 1) * kStepBytes;
  } else {
    const int inputs_per_step = static_cast<int>(kWordBytes / SizeOf(dtype));
    shape.num_steps = (inputs + inputs_per_step - 1) / inputs_per_step;
    shape.bytes = static_cast<size_t>(shape.num_steps) * kStepBytes;
  }
  return shape;
}

PanelLayout::PanelLayout(absl::Span<const WeightPart> parts, PartOrder order, DType dtype)
    : parts_(parts), order_(order), dtype_(dtype) {
  TANDEM_CHECK(!parts.empty());
  const ConstMatrixView& first = parts[0].matrix;
  source_ = first.dtype;
  num_inputs_ = first.cols;
  shape_ = PanelShapeOf(dtype, num_inputs_);
  TANDEM_CHECK(source_ == dtype || (IsQuantized(dtype) && !IsQuantized(source_)));
  for (const WeightPart& part : parts) {
    TANDEM_CHECK(part.matrix.dtype == source_ && part.matrix.cols == first.cols);
    TANDEM_CHECK(IsQuantized(source_) == (part.scales != nullptr));
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
  const ConstMatrixView& matrix = parts_[part].matrix;
  const WeightPart& from = parts_[part];
  const size_t row_bytes = IsQuantized(source_) ? QuantizedBytes(source_, num_inputs_)
                                                : RowBytes(source_, matrix.stride);
  return {static_cast<const std::byte*>(matrix.data) + row * row_bytes,
          from.bias == nullptr ? nullptr : from.bias + row,
          from.scales == nullptr
              ? nullptr
              : from.scales + static_cast<size_t>(row) * QuantizationGroups(num_inputs_)};
}

void PanelLayout::PackPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  if (IsBlocks(dtype_)) {
    const std::byte* rows[kPanelOutputs];
    for (int lane = 0; lane < kPanelOutputs; ++lane) rows[lane] = SourceOf(panel, lane).inputs;
    PackBlockPanel(rows, dtype_, num_inputs_, out);
  } else if (IsQuantized(dtype_)) {
    PackQuantizedPanel(panel, kernels, out);
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
    outputs[lane] = SourceOf(panel, lane).inputs;
    if (outputs[lane] == nullptr) {
      if (zeros == nullptr) {
        zero_storage = std::make_unique<std::byte[]>(bytes);
        zeros = zero_storage.get();
      }
      outputs[lane] = zeros;
    }
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

// Group by group: its bytes of every output, as in files, become the steps of the panel.
void PanelLayout::PackQuantizedPanel(int panel, const CpuKernels& kernels, std::byte* out) const {
  const size_t group_bytes = QuantizedBytes(dtype_, kQuantizationGroup);
  const int group_words = static_cast<int>(group_bytes / kWordBytes);
  Source sources[kPanelOutputs];
  for (int lane = 0; lane < kPanelOutputs; ++lane) sources[lane] = SourceOf(panel, lane);
  alignas(64) std::byte storage[kPanelOutputs * kQuantizationGroup];
  for (int first = 0; first < num_inputs_; first += kQuantizationGroup) {
    const std::byte* outputs[kPanelOutputs];
    float scales[kPanelOutputs] = {};
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      outputs[lane] =
          Group(sources[lane], first, kernels, storage + lane * group_bytes, &scales[lane]);
    }
    kernels.transpose_outputs(outputs, group_words, out);
    const size_t step_bytes = group_bytes * kPanelOutputs;
    if (dtype_ == DType::kInt8) {
      for (size_t i = 0; i < step_bytes; ++i) out[i] ^= std::byte{0x80};
    }
    std::memcpy(out + step_bytes, scales, sizeof(scales));
    out += step_bytes + sizeof(scales);
  }
}

// A whole group of an output from input `first` on, where it lies or else in `storage`.
const std::byte* PanelLayout::Group(const Source& source, int first, const CpuKernels& kernels,
                                    std::byte* storage, float* scale) const {
  const int count = std::min(kQuantizationGroup, num_inputs_ - first);
  if (source.inputs != nullptr && source_ != dtype_) {
    const std::byte* weights = source.inputs + first * SizeOf(source_);
    const bool is_bf16 = source_ == DType::kBF16;
    float widened[kQuantizationGroup];
    if (source_ == DType::kF16) {
      WidenRow(weights, source_, count, widened);
      weights = reinterpret_cast<const std::byte*>(widened);
    }
    kernels.quantize_group(weights, is_bf16 ? GroupSource::kBF16 : GroupSource::kF32, count,
                           dtype_ == DType::kInt4, storage, scale);
    return storage;
  }
  const std::byte* from = nullptr;
  if (source.inputs != nullptr) {
    from = source.inputs + QuantizedBytes(dtype_, first);
    *scale = source.scales[first / kQuantizationGroup];
    if (count == kQuantizationGroup) return from;
  }
  std::fill_n(storage, QuantizedBytes(dtype_, kQuantizationGroup),
              std::byte{dtype_ == DType::kInt8 ? uint8_t{0} : uint8_t{0x88}});
  if (from != nullptr) std::memcpy(storage, from, QuantizedBytes(dtype_, count));
  return storage;
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const float* bias = SourceOf(panel, lane).bias;
    out[lane] = bias == nullptr ? 0.0f : *bias;
  }
}

}  // namespace tandem
