#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

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

PanelLayout::PanelLayout(absl::Span<const WeightPart> parts, PartOrder order)
    : parts_(parts), order_(order) {
  TANDEM_CHECK(!parts.empty());
  const ConstMatrixView& first = parts[0].matrix;
  num_inputs_ = first.cols;
  element_bytes_ = SizeOf(first.dtype);
  for (const WeightPart& part : parts) {
    TANDEM_CHECK(part.matrix.dtype == first.dtype && part.matrix.cols == first.cols);
    num_outputs_ += part.matrix.rows;
  }
  const int inputs_per_step = static_cast<int>(kWordBytes / element_bytes_);
  num_steps_ = (num_inputs_ + inputs_per_step - 1) / inputs_per_step;
  if (order == PartOrder::kGateAndUp) {
    TANDEM_CHECK(parts.size() == 2 && parts[1].matrix.rows == first.rows);
    num_panels_ = 2 * ((first.rows + kPanelOutputs - 1) / kPanelOutputs);
  } else {
    num_panels_ = (num_outputs_ + kPanelOutputs - 1) / kPanelOutputs;
  }
}

size_t PanelLayout::panel_bytes() const { return static_cast<size_t>(num_steps_) * kStepBytes; }

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
  const float* bias = parts_[part].bias;
  return {static_cast<const std::byte*>(matrix.data) + row * matrix.stride * element_bytes_,
          bias == nullptr ? nullptr : bias + row};
}

void PanelLayout::PackPanel(int panel, std::byte* out) const {
  const size_t bytes = num_inputs_ * element_bytes_;
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
    std::byte* step = out + (num_steps_ - 1) * static_cast<size_t>(kStepBytes);
    std::memset(step, 0, kStepBytes);
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(step + lane * kWordBytes, outputs[lane] + bytes - rest, rest);
    }
  }
}

void PanelLayout::PackBias(int panel, float* out) const {
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    const float* bias = SourceOf(panel, lane).bias;
    out[lane] = bias == nullptr ? 0.0f : *bias;
  }
}

}  // namespace tandem
