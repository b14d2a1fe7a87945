#include "model/checkpoint/grouped_matrix.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "model/checkpoint/weights.h"

namespace tandem {

const SafetensorsEntry* ModuleTensors::Find(absl::string_view suffix) const {
  return stored_.Find(absl::StrCat(module_, ".", suffix));
}

absl::Status ModuleTensors::Wrong(const SafetensorsEntry& entry, absl::string_view what,
                                  absl::string_view found, absl::string_view allowed) const {
  return NotAllowed(
      absl::StrCat(*stored_.PathOf(entry.name), ": tensor ", Quoted(entry.name), ": ", what), found,
      allowed);
}

absl::Status ModuleTensors::InvalidShape(const SafetensorsEntry& entry,
                                         absl::string_view allowed) const {
  return Wrong(entry, "shape", Shown(SortedJson(entry.shape)), allowed);
}

absl::Status ModuleTensors::InvalidValue(const SafetensorsEntry& entry, int64_t found,
                                         absl::string_view allowed) const {
  return Wrong(entry, "an element", absl::StrCat(found), allowed);
}

absl::StatusOr<const SafetensorsEntry*> ModuleTensors::Get(absl::string_view suffix,
                                                           absl::Span<const char* const> dtypes) {
  const SafetensorsEntry* const entry = Find(suffix);
  if (entry == nullptr) {
    TANDEM_CHECK(!names_.empty());
    return absl::NotFoundError(absl::StrCat(
        *stored_.PathOf(names_[0]), ": tensor ", Quoted(absl::StrCat(module_, ".", suffix)),
        ": not found in any file, needed next to ", Quoted(names_[0])));
  }
  if (!absl::c_linear_search(dtypes, entry->dtype_name)) {
    return Wrong(*entry, "dtype", entry->dtype_name, absl::StrJoin(dtypes, ", "));
  }
  names_.push_back(entry->name);
  return entry;
}

absl::StatusOr<const SafetensorsEntry*> ModuleTensors::Get(absl::string_view suffix,
                                                           absl::Span<const char* const> dtypes,
                                                           absl::Span<const int64_t> shape) {
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, Get(suffix, dtypes));
  if (absl::MakeConstSpan(entry->shape) != shape) return InvalidShape(*entry, ShapeText(shape));
  return entry;
}

absl::StatusOr<const SafetensorsEntry*> ModuleTensors::GetMatrix(
    absl::string_view suffix, absl::Span<const char* const> dtypes) {
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, Get(suffix, dtypes));
  const bool is_matrix = entry->shape.size() == 2 && absl::c_all_of(entry->shape, [](int64_t size) {
                           return 1 <= size && size <= INT_MAX / 32;
                         });
  if (is_matrix) return entry;
  return InvalidShape(*entry, absl::StrCat("two sizes from 1 to ", INT_MAX / 32));
}

float FloatAt(const SafetensorsEntry& entry, int64_t index) {
  const std::byte* const data = entry.bytes.data();
  if (entry.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * sizeof(bits), sizeof(bits));
  return entry.dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
}

uint64_t SpreadNibbles(uint32_t word) {
  uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000FFFF0000FFFF;
  bytes = (bytes | bytes << 8) & 0x00FF00FF00FF00FF;
  return (bytes | bytes << 4) & 0x0F0F0F0F0F0F0F0F;
}

// ---- ExactFloats ----
bool ExactFloats::Holds(float scale, int bits, int lowest, float largest) const {
  // The scale is `mantissa`, an odd number, times 2^exponent.
  const uint32_t pattern = std::bit_cast<uint32_t>(scale);
  const int biased = static_cast<int>(pattern >> 23 & 255);
  uint32_t mantissa = (pattern & 0x7FFFFF) | (biased > 0 ? 1u << 23 : 0);
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  const int exponent = std::max(biased, 1) - 150 + zeros;
  const int width = std::bit_width(mantissa);
  // A product of numbers of a and b significant bits has at most a + b, and at most b if a is 1.
  const int product = width == 1 || bits_ == 1 ? std::max(width, bits_) : width + bits_;
  return product <= bits && exponent + lowest_ >= lowest && std::abs(scale) * largest_ <= largest;
}

void ExactFloats::Add(float scale) {
  if (scale == 0) return;
  const bool is_finite = std::isfinite(scale);
  bf16_ = bf16_ && is_finite && Holds(scale, 8, -133, 0x1.FEp127f);
  f16_ = f16_ && is_finite && Holds(scale, 11, -24, 65504.0f);
}

// ---- GroupedMatrix ----
// The codes, zeros and scales of some rows.
struct GroupedMatrix::Tile {
  int count = 0;
  std::vector<uint8_t> codes;  // [count, cols]
  std::vector<int16_t> zeros;  // [count, num_groups]
  std::vector<float> scales;   // [count, num_groups]
};

GroupedMatrix::GroupedMatrix(int rows, int cols, const ModuleTensors& tensors,
                             const GroupedLayout& layout)
    : QuantizedMatrix(rows, cols, tensors.names()),
      layout_(layout),
      num_groups_(layout.group_size == 0 ? 1
                                         : static_cast<int>(CeilDivide(cols, layout.group_size))) {
  if (num_groups_ == 1) layout_.group_size = 0;
}

void GroupedMatrix::ReadScales(int first, int count, float* scales) const {
  for (int row = first; row < first + count; ++row) {
    for (int group = 0; group < num_groups_; ++group) {
      *scales++ = FloatAt(*layout_.scales, row * layout_.row_stride + group * layout_.group_stride);
    }
  }
}

void GroupedMatrix::ReadStreams(const CodeStreams& streams, int first, int count,
                                uint8_t* codes) const {
  const auto stream = [&](int row) {
    return streams.words + (first + row) * streams.step * sizeof(uint32_t);
  };
  if (bits() == 4) {
    const auto read = [&](int row, int i) {
      const uint64_t bytes =
          SpreadNibbles(WordAt(stream(row), i / kNibblesPerWord * streams.stride));
      std::memcpy(codes + static_cast<size_t>(row) * cols() + i, &bytes,
                  std::min(kNibblesPerWord, cols() - i));
    };
    // Go row by row where the words of a row are neighbours, else word by word over all rows.
    const int rows_at_a_time = streams.stride == 1 ? 1 : count;
    for (int begin = 0; begin < count; begin += rows_at_a_time) {
      for (int i = 0; i < cols(); i += kNibblesPerWord) {
        for (int row = begin; row < begin + rows_at_a_time; ++row) read(row, i);
      }
    }
    return;
  }
  for (int row = 0; row < count; ++row, codes += cols()) {
    const std::byte* const words = stream(row);
    if (bits() == 8 && streams.stride == 1) {
      std::memcpy(codes, words, cols());
      continue;
    }
    for (int i = 0; i < cols(); ++i) {
      codes[i] = static_cast<uint8_t>(CodeAt(words, streams.stride, i, bits()));
    }
  }
}

MatrixOrError GroupedMatrix::Finished(std::unique_ptr<GroupedMatrix> matrix,
                                      const ModuleTensors& tensors) {
  RETURN_IF_ERROR(matrix->Finish(tensors));
  return matrix;
}

absl::Status GroupedMatrix::Finish(const ModuleTensors& tensors) {
  if (const SafetensorsEntry* const entry = layout_.group_of_input; entry != nullptr) {
    bool is_in_order = true;
    group_of_input_.resize(cols());
    for (int i = 0; i < cols(); ++i) {
      const uint32_t group = WordAt(entry->bytes.data(), i);
      if (group >= static_cast<uint32_t>(num_groups_)) {
        return tensors.InvalidValue(*entry, static_cast<int32_t>(group),
                                    absl::StrCat("groups from 0 to ", num_groups_ - 1));
      }
      group_of_input_[i] = static_cast<int32_t>(group);
      is_in_order = is_in_order && group_of_input_[i] == GroupInOrder(i);
    }
    if (is_in_order) group_of_input_.clear();
  }
  FindForms();
  return absl::OkStatus();
}

// The range of integers that blocks of a format hold.
struct BlockNumbers {
  DType dtype;
  int least;
  int most;
};
constexpr BlockNumbers kBlockNumbers[] = {
    {DType::kQ4_0, -8, 7}, {DType::kQ5_0, -16, 15}, {DType::kQ8_0, -128, 127}};

void GroupedMatrix::FindForms() {
  int min_zero = INT_MAX;
  int max_zero = INT_MIN;
  std::vector<int16_t> zeros(size_t{kTileRows} * num_groups_);
  for (int first = 0; first < rows(); first += kTileRows) {
    const int count = std::min(kTileRows, rows() - first);
    ReadZeros(first, count, zeros.data());
    const auto [least, most] = std::minmax_element(
        zeros.begin(), zeros.begin() + static_cast<ptrdiff_t>(count) * num_groups_);
    min_zero = std::min<int>(min_zero, *least);
    max_zero = std::max<int>(max_zero, *most);
  }
  const int least = -max_zero;
  const int most = (1 << bits()) - 1 - min_zero;
  const int largest = std::max({std::abs(least), std::abs(most), 1});
  ExactFloats floats(std::max<int>(1, std::bit_width(static_cast<unsigned>(largest) - 1)), 0,
                     static_cast<float>(largest));
  bool are_f16 = true;
  if (layout_.scales->dtype != DType::kF16 || floats.is_any_left()) {
    std::vector<float> scales(num_groups_);
    for (int row = 0; row < rows() && (are_f16 || floats.is_any_left()); ++row) {
      ReadScales(row, 1, scales.data());
      for (const float scale : scales) {
        floats.Add(scale);
        are_f16 = are_f16 &&
                  (layout_.scales->dtype == DType::kF16 || F16ToFloat(FloatToF16(scale)) == scale);
      }
      if (layout_.scales->dtype == DType::kF16 && !floats.is_any_left()) break;
    }
  }
  forms_.floats = floats.dtype();

  const auto* const numbers = absl::c_find_if(kBlockNumbers, [&](const BlockNumbers& format) {
    return format.least <= least && most <= format.most;
  });
  if (numbers == std::end(kBlockNumbers)) {
    forms_.why_no_blocks = absl::StrCat("numbers from ", least, " to ", most);
  } else if (!are_f16) {
    forms_.why_no_blocks = "scales that f16 cannot hold";
  } else if (cols() % kBlockGroup != 0) {
    forms_.why_no_blocks = absl::StrCat("rows of ", cols());
  } else if (!FindBlockGroups()) {
    forms_.why_no_blocks =
        group_of_input_.empty() ? absl::StrCat("groups of ", layout_.group_size) : "act order";
  } else {
    forms_.blocks = numbers->dtype;
  }
}

// Fills in the group of each block. Returns false if a block has several groups.
bool GroupedMatrix::FindBlockGroups() {
  group_of_block_.resize(cols() / kBlockGroup);
  for (int i = 0; i < cols(); ++i) {
    const int group = GroupOf(i);
    int32_t& of_block = group_of_block_[i / kBlockGroup];
    if (i % kBlockGroup == 0) of_block = group;
    if (of_block != group) return false;
  }
  return true;
}

void GroupedMatrix::WriteRows(int first, int count, DType dtype, std::byte* out) const {
  TANDEM_CHECK(first % kTileRows == 0 && first + count <= rows());
  TANDEM_CHECK(dtype == forms_.floats || dtype == forms_.blocks);
  Tile tile;
  const size_t rows_of_tile = std::min(kTileRows, count);
  tile.codes.resize(rows_of_tile * cols());
  tile.zeros.resize(rows_of_tile * num_groups_);
  tile.scales.resize(rows_of_tile * num_groups_);
  const size_t row_bytes = RowBytes(dtype, cols());
  for (const int end = first + count; first < end; first += kTileRows) {
    tile.count = std::min(kTileRows, end - first);
    ReadCodes(first, tile.count, tile.codes.data());
    ReadZeros(first, tile.count, tile.zeros.data());
    ReadScales(first, tile.count, tile.scales.data());
    if (IsBlocks(dtype)) {
      WriteBlocks(tile, dtype, out);
    } else {
      WriteFloats(tile, dtype, out);
    }
    out += tile.count * row_bytes;
  }
}

void GroupedMatrix::WriteBlocks(const Tile& tile, DType dtype, std::byte* out) const {
  const int block_bytes = BlockShapeOf(dtype).bytes;
  const auto* const numbers = absl::c_find_if(
      kBlockNumbers, [&](const BlockNumbers& format) { return format.dtype == dtype; });
  BlockGroup group;
  group.zero = static_cast<uint8_t>(-numbers->least);
  const uint8_t* codes = tile.codes.data();
  for (int row = 0; row < tile.count; ++row) {
    const size_t groups_before = static_cast<size_t>(row) * num_groups_;
    for (const int32_t of_block : group_of_block_) {
      group.scale = FloatToF16(tile.scales[groups_before + of_block]);
      const int shift = group.zero - tile.zeros[groups_before + of_block];
      for (uint8_t& code : group.codes) code = static_cast<uint8_t>(*codes++ + shift);
      WriteBlock({&group, 1}, dtype, out);
      out += block_bytes;
    }
  }
}

void GroupedMatrix::WriteFloats(const Tile& tile, DType dtype, std::byte* out) const {
  std::vector<float> weights(cols());
  const size_t row_bytes = RowBytes(dtype, cols());
  for (int row = 0; row < tile.count; ++row) {
    const uint8_t* const codes = tile.codes.data() + static_cast<size_t>(row) * cols();
    const float* const scales = tile.scales.data() + static_cast<size_t>(row) * num_groups_;
    const int16_t* const zeros = tile.zeros.data() + static_cast<size_t>(row) * num_groups_;
    if (group_of_input_.empty()) {
      const int size = layout_.group_size == 0 ? cols() : layout_.group_size;
      for (int group = 0, begin = 0; group < num_groups_; ++group, begin += size) {
        const int end = std::min<int>(cols(), begin + size);
        const int zero = zeros[group];
        const float scale = scales[group];
        for (int i = begin; i < end; ++i) weights[i] = scale * static_cast<float>(codes[i] - zero);
      }
    } else {
      for (int i = 0; i < cols(); ++i) {
        const int group = group_of_input_[i];
        weights[i] = scales[group] * static_cast<float>(codes[i] - zeros[group]);
      }
    }
    NarrowRow(weights.data(), cols(), dtype, out);
    out += row_bytes;
  }
}

}  // namespace tandem
