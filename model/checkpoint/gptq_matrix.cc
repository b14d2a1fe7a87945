// GPTQ: "qweight" [inputs * bits / 32, outputs], a bit stream down each column, "qzeros" [groups,
// outputs * bits / 32], a bit stream along each row, "scales" [groups, outputs] and "g_idx"
// [inputs], the group of each input. Reference: AutoGPTQ's and GPTQModel's linear modules.
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/checkpoint/grouped_matrix.h"

namespace tandem {
namespace {

// A word with 1 in each of its numbers. Version 1 of the format subtracts it from each word of
// zeros, so that a zero of 0 borrows from its neighbour.
constexpr uint32_t OneEach(int bits) {
  uint32_t ones = 0;
  for (int at = 0; at < 32; at += bits) ones |= 1u << at;
  return ones;
}

class GptqMatrix final : public GroupedMatrix {
 public:
  GptqMatrix(int rows, int cols, const ModuleTensors& tensors, const GroupedLayout& layout,
             const SafetensorsEntry& words, const SafetensorsEntry* zeros, bool is_less_one)
      : GroupedMatrix(rows, cols, tensors, layout),
        words_(words.bytes.data()),
        zeros_(zeros == nullptr ? nullptr : zeros->bytes.data()),
        is_less_one_(is_less_one) {}

 private:
  void ReadCodes(int first, int count, uint8_t* codes) const override {
    ReadStreams({.words = words_, .step = 1, .stride = rows()}, first, count, codes);
  }

  void ReadZeros(int first, int count, int16_t* zeros) const override {
    const int64_t words = CeilDivide(int64_t{rows()} * bits(), 32);  // words of one group
    for (int row = first; row < first + count; ++row) {
      for (int group = 0; group < num_groups(); ++group) {
        *zeros++ = static_cast<int16_t>(
            zeros_ == nullptr ? 1 << (bits() - 1)
                              : ZeroAt(zeros_ + group * words * sizeof(uint32_t), row));
      }
    }
  }

  // Returns the zero of output `row` from the stream of a group.
  int ZeroAt(const std::byte* stream, int row) const {
    const int mask = (1 << bits()) - 1;
    if (!is_less_one_ || 32 % bits() != 0) {
      const int zero = CodeAt(stream, 1, row, bits());
      return is_less_one_ ? (zero + 1) & mask : zero;
    }
    const int64_t at = int64_t{row} * bits();
    const uint32_t word = WordAt(stream, at / 32) + OneEach(bits());
    return static_cast<int>(word >> at % 32) & mask;
  }

  const std::byte* const words_;
  const std::byte* const zeros_;  // or null
  const bool is_less_one_;
};

}  // namespace

MatrixOrError OpenGptqMatrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config) {
  ModuleTensors tensors(stored, module);
  WeightScheme scheme = config.schemes[0];
  ASSIGN_OR_RETURN(const SafetensorsEntry* const words, tensors.GetMatrix("qweight", kWordDTypes));
  const int64_t cols = words->shape[1];
  GroupedLayout layout;
  int64_t inputs = words->shape[0] * 32 / scheme.bits;
  if (tensors.Find("g_idx") != nullptr) {
    ASSIGN_OR_RETURN(layout.group_of_input, tensors.Get("g_idx", kWordDTypes));
    inputs = layout.group_of_input->num_elements;
    if (layout.group_of_input->shape.size() != 1 || inputs < 1) {
      return tensors.InvalidShape(*layout.group_of_input, "[inputs]");
    }
    if (config.has_overrides) {
      for (const int bits : {2, 3, 4, 8}) {
        if (CeilDivide(inputs * bits, 32) == words->shape[0]) scheme.bits = bits;
      }
    }
  } else if (config.has_act_order) {
    return tensors.Get("g_idx", kWordDTypes).status();
  }
  if (words->shape[0] != CeilDivide(inputs * scheme.bits, 32)) {
    return tensors.InvalidShape(
        *words, absl::StrCat("[", CeilDivide(inputs * scheme.bits, 32), ", outputs], ", scheme.bits,
                             " bits of ", inputs, " inputs"));
  }
  ASSIGN_OR_RETURN(layout.scales, tensors.GetMatrix("scales", kFloatDTypes));
  const int64_t groups = layout.scales->shape[0];
  if (config.has_overrides) {
    scheme.group_size = static_cast<int>(CeilDivide(inputs, groups));
  }
  const int64_t wanted = scheme.group_size == 0 ? 1 : CeilDivide(inputs, scheme.group_size);
  if (groups != wanted || layout.scales->shape[1] != cols) {
    return tensors.InvalidShape(*layout.scales, absl::StrCat("[", wanted, ", ", cols, "]"));
  }
  layout.bits = scheme.bits;
  layout.group_size = scheme.group_size;
  layout.row_stride = 1;
  layout.group_stride = cols;
  const SafetensorsEntry* zeros = nullptr;
  // A symmetric matrix without zeros has the middle of the range for all.
  if (tensors.Find("qzeros") != nullptr || !scheme.is_symmetric) {
    ASSIGN_OR_RETURN(
        zeros, tensors.Get("qzeros", kWordDTypes, {groups, CeilDivide(cols * scheme.bits, 32)}));
  }
  return GroupedMatrix::Finished(
      std::make_unique<GptqMatrix>(static_cast<int>(cols), static_cast<int>(inputs), tensors,
                                   layout, *words, zeros, config.stores_zeros_less_one),
      tensors);
}

}  // namespace tandem
