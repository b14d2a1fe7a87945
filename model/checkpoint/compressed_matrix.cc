// Integer matrices of compressed-tensors: the codes are "weight_packed" [outputs, inputs * bits /
// 32], a bit stream along each row, with "weight_shape" [2], or "weight" [outputs, inputs] of I8.
// The scales are "weight_scale" [outputs, groups], [outputs, 1] or one element. An asymmetric
// matrix also has "weight_zero_point", packed down each column or of I8. Values are signed; packed
// streams store them with half of the range added. Reference: compressed-tensors' compressors.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/checkpoint/grouped_matrix.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

constexpr const char* kByteDTypes[] = {"I8"};
constexpr const char* kZeroDTypes[] = {"I32", "I8"};
constexpr const char* kShapeDTypes[] = {"I64", "I32"};

// Zero points, as codes.
struct ZeroPoints {
  const std::byte* data = nullptr;  // null: the middle of the range for all
  bool is_packed = false;           // a bit stream down the outputs of each group
  int64_t row_stride = 0;           // of zero points of I8
};

class CompressedMatrix final : public GroupedMatrix {
 public:
  CompressedMatrix(int rows, int cols, const ModuleTensors& tensors, const GroupedLayout& layout,
                   const SafetensorsEntry& numbers, const ZeroPoints& zeros)
      : GroupedMatrix(rows, cols, tensors, layout),
        numbers_(numbers.bytes.data()),
        is_packed_(numbers.dtype_name == kWordDTypes[0]),
        zeros_(zeros) {}

 private:
  void ReadCodes(int first, int count, uint8_t* codes) const override {
    if (is_packed_) {
      const int64_t row_words = CeilDivide(int64_t{cols()} * bits(), 32);
      return ReadStreams({.words = numbers_, .step = row_words, .stride = 1}, first, count, codes);
    }
    const auto* const bytes = reinterpret_cast<const uint8_t*>(numbers_) + int64_t{first} * cols();
    std::transform(bytes, bytes + int64_t{count} * cols(), codes,
                   [](uint8_t byte) { return byte ^ 0x80; });
  }

  void ReadZeros(int first, int count, int16_t* zeros) const override {
    const int middle = 1 << (bits() - 1);
    for (int row = first; row < first + count; ++row) {
      for (int group = 0; group < num_groups(); ++group) {
        int zero = middle;
        if (zeros_.is_packed) {
          zero = CodeAt(zeros_.data + group * sizeof(uint32_t), num_groups(), row, bits());
        } else if (zeros_.data != nullptr) {
          zero += static_cast<int8_t>(zeros_.data[row * zeros_.row_stride + group]);
        }
        *zeros++ = static_cast<int16_t>(zero);
      }
    }
  }

  const std::byte* const numbers_;
  const bool is_packed_;
  const ZeroPoints zeros_;
};

int64_t IntegerAt(const SafetensorsEntry& entry, int64_t index) {
  if (entry.dtype_name == kShapeDTypes[1]) {
    return static_cast<int32_t>(WordAt(entry.bytes.data(), index));
  }
  int64_t value;
  std::memcpy(&value, entry.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// Finds the scales and fills in their layout. Returns the scheme of the configuration that their
// shape matches.
absl::StatusOr<WeightScheme> ReadScales(ModuleTensors* tensors, int bits, bool is_packed,
                                        int64_t rows, int64_t cols,
                                        const QuantizationConfig& config, GroupedLayout* layout) {
  ASSIGN_OR_RETURN(layout->scales, tensors->Get("weight_scale", kFloatDTypes));
  const std::vector<int64_t>& shape = layout->scales->shape;
  const WeightScheme* found = nullptr;
  std::string allowed;
  for (const WeightScheme& scheme : config.schemes) {
    if (scheme.is_float || (is_packed && scheme.bits != bits)) continue;
    const int64_t groups = scheme.group_size == 0 ? 1 : CeilDivide(cols, scheme.group_size);
    const bool fits = shape == std::vector<int64_t>{rows, groups} ||
                      (scheme.group_size == 0 &&
                       (layout->scales->num_elements == 1 || shape == std::vector<int64_t>{rows}));
    absl::StrAppend(&allowed, allowed.empty() ? "" : " or ", ShapeText({rows, groups}));
    if (!fits) continue;
    if (found != nullptr && found->group_size != scheme.group_size) {
      return tensors->InvalidShape(
          *layout->scales,
          absl::StrCat("a shape that matches one group of ", config.where, ", not two"));
    }
    // Prefer a symmetric match: zero points are required only if every matching scheme has them.
    if (found == nullptr || scheme.is_symmetric) found = &scheme;
  }
  if (found == nullptr) {
    return tensors->InvalidShape(*layout->scales, absl::StrCat(allowed.empty() ? "none" : allowed,
                                                               ", as ", config.where, " says"));
  }
  layout->group_size = found->group_size;
  layout->group_stride = 1;
  const int64_t groups = found->group_size == 0 ? 1 : CeilDivide(cols, found->group_size);
  layout->row_stride = layout->scales->num_elements == 1 ? 0 : groups;
  return *found;
}

MatrixOrError OpenWith(ModuleTensors* tensors, const SafetensorsEntry& numbers, int bits,
                       int64_t rows, int64_t cols, const QuantizationConfig& config) {
  const bool is_packed = numbers.dtype_name == kWordDTypes[0];
  GroupedLayout layout;
  ASSIGN_OR_RETURN(const WeightScheme scheme,
                   ReadScales(tensors, bits, is_packed, rows, cols, config, &layout));
  layout.bits = bits;
  const int64_t groups = scheme.group_size == 0 ? 1 : CeilDivide(cols, scheme.group_size);
  ZeroPoints zeros;
  if (tensors->Find("weight_zero_point") != nullptr || !scheme.is_symmetric) {
    ASSIGN_OR_RETURN(const SafetensorsEntry* const entry,
                     tensors->Get("weight_zero_point", kZeroDTypes));
    zeros.data = entry->bytes.data();
    zeros.is_packed = entry->dtype_name == kWordDTypes[0];
    zeros.row_stride = entry->num_elements == 1 ? 0 : groups;
    const std::vector<int64_t> wanted = {zeros.is_packed ? CeilDivide(rows * bits, 32) : rows,
                                         groups};
    const bool fits =
        entry->shape == wanted || (!zeros.is_packed && entry->shape == layout.scales->shape);
    if (!fits) return tensors->InvalidShape(*entry, ShapeText(wanted));
  }
  if (tensors->Find("weight_g_idx") != nullptr) {
    ASSIGN_OR_RETURN(const SafetensorsEntry* const order,
                     tensors->Get("weight_g_idx", kWordDTypes, {cols}));
    // -1 as the group of any input means that the inputs are in order.
    bool is_set = true;
    for (int64_t i = 0; i < cols; ++i) is_set = is_set && IntegerAt(*order, i) != -1;
    if (is_set) layout.group_of_input = order;
  }
  return GroupedMatrix::Finished(
      std::make_unique<CompressedMatrix>(static_cast<int>(rows), static_cast<int>(cols), *tensors,
                                         layout, numbers, zeros),
      *tensors);
}

}  // namespace

MatrixOrError OpenPackedMatrix(const StoredWeights& stored, const std::string& module,
                               const QuantizationConfig& config) {
  ModuleTensors tensors(stored, module);
  ASSIGN_OR_RETURN(const SafetensorsEntry* const words,
                   tensors.GetMatrix("weight_packed", kWordDTypes));
  const int64_t rows = words->shape[0];
  ASSIGN_OR_RETURN(const SafetensorsEntry* const shape,
                   tensors.Get("weight_shape", kShapeDTypes, {2}));
  const int64_t cols = IntegerAt(*shape, 1);
  if (IntegerAt(*shape, 0) != rows || cols < 1 || cols > int64_t{32} * words->shape[1]) {
    return tensors.InvalidValue(*shape, IntegerAt(*shape, 0) != rows ? IntegerAt(*shape, 0) : cols,
                                absl::StrCat("[", rows, ", inputs], as weight_packed says"));
  }
  std::string allowed;
  for (const WeightScheme& scheme : config.schemes) {
    if (scheme.is_float) continue;
    const int64_t wanted = CeilDivide(cols * scheme.bits, 32);
    if (wanted == words->shape[1]) {
      return OpenWith(&tensors, *words, scheme.bits, rows, cols, config);
    }
    absl::StrAppend(&allowed, allowed.empty() ? "" : " or ", ShapeText({rows, wanted}));
  }
  return tensors.InvalidShape(
      *words, absl::StrCat(allowed.empty() ? "none" : allowed, ", as ", config.where, " says"));
}

MatrixOrError OpenInt8Matrix(const StoredWeights& stored, const std::string& module,
                             const QuantizationConfig& config) {
  ModuleTensors tensors(stored, module);
  ASSIGN_OR_RETURN(const SafetensorsEntry* const bytes, tensors.GetMatrix("weight", kByteDTypes));
  return OpenWith(&tensors, *bytes, 8, bytes->shape[0], bytes->shape[1], config);
}

}  // namespace tandem
