#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/quantize.h"
#include "kernels/widen_row.h"

namespace tandem {
namespace {

static_assert(kGroupInputs == kQuantizationGroup);

// A step of an output is a word: one f32, or two inputs of 16 bits.
constexpr size_t kWordBytes = 4;
constexpr int kLineWords = 16;  // of a cache line
// How far ahead of the transposition rows are fetched: 64 rows a page apart are more streams than
// hardware follows.
constexpr size_t kFetchBytes = 512;

typedef uint32_t Word4 __attribute__((vector_size(16)));

Word4 LoadWords(const std::byte* p) {
  Word4 words;
  std::memcpy(&words, p, sizeof(words));
  return words;
}
void StoreWords(std::byte* p, Word4 words) { std::memcpy(p, &words, sizeof(words)); }

// Writes four words of each of four outputs to four steps.
void TransposeFour(const std::byte* const* outputs, size_t offset, std::byte* out) {
  const Word4 a = LoadWords(outputs[0] + offset);
  const Word4 b = LoadWords(outputs[1] + offset);
  const Word4 c = LoadWords(outputs[2] + offset);
  const Word4 d = LoadWords(outputs[3] + offset);
  const Word4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Word4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Word4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Word4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  StoreWords(out, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  StoreWords(out + kStepBytes, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  StoreWords(out + 2 * kStepBytes, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  StoreWords(out + 3 * kStepBytes, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

// Steps of which every output has all its bytes: [0, bytes / 4).
void TransposeWholeWords(const std::byte* const* outputs, size_t bytes, std::byte* out) {
  const size_t words = bytes / kWordBytes;
  size_t word = 0;
  for (; word + kLineWords <= words; word += kLineWords) {
    for (int lane = 0; lane < kPanelOutputs; lane += 4) {
      for (int i = 0; i < 4; ++i) {
        __builtin_prefetch(outputs[lane + i] + word * kWordBytes + kFetchBytes, 0, 2);
      }
      for (int w = 0; w < kLineWords; w += 4) {
        TransposeFour(outputs + lane, (word + w) * kWordBytes,
                      out + (word + w) * kStepBytes + lane * kWordBytes);
      }
    }
  }
  for (; word < words; ++word) {
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(out + word * kStepBytes + lane * kWordBytes, outputs[lane] + word * kWordBytes,
                  kWordBytes);
    }
  }
}

}  // namespace

PanelShape PanelShapeOf(DType dtype, int inputs) {
  PanelShape shape;
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
  const size_t row_bytes =
      IsQuantized(source_) ? QuantizedBytes(source_, num_inputs_) : matrix.stride * SizeOf(source_);
  return {static_cast<const std::byte*>(matrix.data) + row * row_bytes,
          from.bias == nullptr ? nullptr : from.bias + row,
          from.scales == nullptr
              ? nullptr
              : from.scales + static_cast<size_t>(row) * QuantizationGroups(num_inputs_)};
}

void PanelLayout::PackPanel(int panel, std::byte* out) const {
  if (IsQuantized(dtype_)) {
    PackQuantizedPanel(panel, out);
  } else {
    PackFloatPanel(panel, out);
  }
}

void PanelLayout::PackFloatPanel(int panel, std::byte* out) const {
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
  TransposeWholeWords(outputs, bytes, out);
  if (const size_t rest = bytes % kWordBytes; rest != 0) {
    std::byte* step = out + (shape_.num_steps - 1) * static_cast<size_t>(kStepBytes);
    std::memset(step, 0, kStepBytes);
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(step + lane * kWordBytes, outputs[lane] + bytes - rest, rest);
    }
  }
}

// Group by group: its bytes of every output, as in files, become the steps of the panel.
void PanelLayout::PackQuantizedPanel(int panel, std::byte* out) const {
  const size_t group_bytes = QuantizedBytes(dtype_, kQuantizationGroup);
  // A whole group of zeros.
  const std::byte zero{dtype_ == DType::kInt8 ? uint8_t{0} : uint8_t{0x88}};
  Source sources[kPanelOutputs];
  for (int lane = 0; lane < kPanelOutputs; ++lane) sources[lane] = SourceOf(panel, lane);
  std::vector<std::byte> storage(kPanelOutputs * group_bytes);
  float weights[kQuantizationGroup];
  for (int first = 0; first < num_inputs_; first += kQuantizationGroup) {
    const int count = std::min(kQuantizationGroup, num_inputs_ - first);
    const std::byte* outputs[kPanelOutputs];
    float scales[kPanelOutputs] = {};
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      const Source& source = sources[lane];
      std::byte* own = storage.data() + lane * group_bytes;
      outputs[lane] = own;
      const bool is_whole = source.inputs != nullptr && count == kQuantizationGroup;
      if (!is_whole) std::fill_n(own, group_bytes, zero);
      if (source.inputs == nullptr) continue;
      if (source_ == dtype_) {
        const std::byte* from = source.inputs + QuantizedBytes(dtype_, first);
        scales[lane] = source.scales[first / kQuantizationGroup];
        if (is_whole) {
          outputs[lane] = from;
        } else {
          std::memcpy(own, from, QuantizedBytes(dtype_, count));
        }
      } else {
        WidenRow(source.inputs + first * SizeOf(source_), source_, count, weights);
        QuantizeGroup(weights, count, dtype_, own, &scales[lane]);
      }
    }
    TransposeWholeWords(outputs, group_bytes, out);
    const size_t step_bytes = group_bytes * kPanelOutputs;
    if (dtype_ == DType::kInt8) {
      for (size_t i = 0; i < step_bytes; ++i) out[i] ^= std::byte{0x80};
    }
    std::memcpy(out + step_bytes, scales, sizeof(scales));
    out += step_bytes + sizeof(scales);
  }
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const float* bias = SourceOf(panel, lane).bias;
    out[lane] = bias == nullptr ? 0.0f : *bias;
  }
}

}  // namespace tandem
