// What integer matrices of all layouts share; for the readers of their tensors.
#ifndef TANDEM_MODEL_CHECKPOINT_GROUPED_MATRIX_H_
#define TANDEM_MODEL_CHECKPOINT_GROUPED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/checkpoint/quantized_weights.h"
#include "model/checkpoint/stored_weights.h"

namespace tandem {

// The tensors of one module, "<module>.<suffix>". Errors name the file, the tensor, the value found
// and the values allowed.
class ModuleTensors {
 public:
  ModuleTensors(const StoredWeights& stored, std::string module)
      : stored_(stored), module_(std::move(module)) {}

  // Returns null if there is no such tensor.
  const SafetensorsEntry* Find(absl::string_view suffix) const;
  // Returns a tensor of one of these dtypes. NOT_FOUND if it is absent.
  absl::StatusOr<const SafetensorsEntry*> Get(absl::string_view suffix,
                                              absl::Span<const char* const> dtypes);
  // The same, and INVALID_ARGUMENT unless it has this shape.
  absl::StatusOr<const SafetensorsEntry*> Get(absl::string_view suffix,
                                              absl::Span<const char* const> dtypes,
                                              absl::Span<const int64_t> shape);
  // Returns a matrix: two sizes, each from 1 to INT_MAX / 32.
  absl::StatusOr<const SafetensorsEntry*> GetMatrix(absl::string_view suffix,
                                                    absl::Span<const char* const> dtypes);
  absl::Status InvalidShape(const SafetensorsEntry& entry, absl::string_view allowed) const;
  // The error for the value of an element.
  absl::Status InvalidValue(const SafetensorsEntry& entry, int64_t found,
                            absl::string_view allowed) const;

  // The names of the tensors that Get returned, in that order.
  const std::vector<std::string>& names() const { return names_; }

 private:
  absl::Status Wrong(const SafetensorsEntry& entry, absl::string_view what, absl::string_view found,
                     absl::string_view allowed) const;

  const StoredWeights& stored_;
  const std::string module_;
  std::vector<std::string> names_;
};

inline constexpr const char* kFloatDTypes[] = {"F16", "BF16", "F32"};
inline constexpr const char* kWordDTypes[] = {"I32"};

// Reads a word; the bytes of a tensor need not be aligned.
inline uint32_t WordAt(const std::byte* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}
// Reads an element of a tensor of floats, as f32.
float FloatAt(const SafetensorsEntry& entry, int64_t index);
// Returns code `index` of a stream of codes of `bits` bits, lowest bits first, whose words lie
// `stride` words apart.
inline int CodeAt(const std::byte* words, int64_t stride, int64_t index, int bits) {
  const int64_t at = index * bits;
  const int shift = static_cast<int>(at % 32);
  uint32_t code = WordAt(words, at / 32 * stride) >> shift;
  if (shift + bits > 32) code |= WordAt(words, (at / 32 + 1) * stride) << (32 - shift);
  return static_cast<int>(code & ((1u << bits) - 1));
}
// Streams of codes. Stream i begins at word i * step, and its words lie `stride` words apart.
struct CodeStreams {
  const std::byte* words = nullptr;
  int64_t step = 0;
  int64_t stride = 0;
};
// Spreads a word of eight 4-bit codes over eight bytes: byte i is code i.
inline constexpr int kNibblesPerWord = 8;
uint64_t SpreadNibbles(uint32_t word);
inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The layout of a matrix's numbers and scales.
struct GroupedLayout {
  int bits = 0;        // of a code
  int group_size = 0;  // inputs; 0: the whole row
  // One scale for each output and group, at index output * row_stride + group * group_stride.
  const SafetensorsEntry* scales = nullptr;
  int64_t row_stride = 0;
  int64_t group_stride = 0;
  const SafetensorsEntry* group_of_input = nullptr;  // [cols] of I32; null: in order
};

// Weight (r, c) is Scale(r, group of c) * (Code(r, c) - Zero(r, group of c)).
class GroupedMatrix : public QuantizedMatrix {
 public:
  // Completes a matrix: checks the groups of inputs and finds its forms, for which it reads all
  // zeros and perhaps all scales. INVALID_ARGUMENT if the group of an input is out of range.
  static MatrixOrError Finished(std::unique_ptr<GroupedMatrix> matrix,
                                const ModuleTensors& tensors);

  void WriteRows(int first, int count, DType dtype, std::byte* out) const final;

 protected:
  // The rows of a tile, which are read together. A tile begins at a multiple of this.
  static constexpr int kTileRows = 64;

  GroupedMatrix(int rows, int cols, const ModuleTensors& tensors, const GroupedLayout& layout);

  int bits() const { return layout_.bits; }
  int num_groups() const { return num_groups_; }

  // Reads codes from 0 to 2^bits - 1 of rows [first, first + count), count <= kTileRows.
  //   codes: [count, cols]
  virtual void ReadCodes(int first, int count, uint8_t* codes) const = 0;
  //   zeros: [count, num_groups]
  virtual void ReadZeros(int first, int count, int16_t* zeros) const = 0;
  // Implements ReadCodes for a matrix with a bit stream for each row.
  void ReadStreams(const CodeStreams& streams, int first, int count, uint8_t* codes) const;

 private:
  struct Tile;

  absl::Status Finish(const ModuleTensors& tensors);

  int GroupInOrder(int input) const {
    return layout_.group_size == 0 ? 0 : input / layout_.group_size;
  }
  int GroupOf(int input) const {
    return group_of_input_.empty() ? GroupInOrder(input) : group_of_input_[input];
  }
  bool FindBlockGroups();
  void ReadScales(int first, int count, float* scales) const;
  void FindForms();
  void WriteBlocks(const Tile& tile, DType dtype, std::byte* out) const;
  void WriteFloats(const Tile& tile, DType dtype, std::byte* out) const;

  GroupedLayout layout_;
  const int num_groups_;
  std::vector<int32_t> group_of_input_;  // [cols]; empty: in order
  std::vector<int32_t> group_of_block_;  // [cols / 32]; valid only if each block has one group
};

// Finds which 16-bit float dtypes hold every product of a number and a scale exactly.
class ExactFloats {
 public:
  // The numbers are multiples of 2^`lowest` with `bits` significant bits, up to `largest`.
  ExactFloats(int bits, int lowest, float largest)
      : bits_(bits), lowest_(lowest), largest_(largest) {}

  void Add(float scale);
  bool is_any_left() const { return bf16_ || f16_; }
  DType dtype() const { return bf16_ ? DType::kBF16 : f16_ ? DType::kF16 : DType::kF32; }

 private:
  bool Holds(float scale, int bits, int lowest, float largest) const;

  const int bits_;
  const int lowest_;
  const float largest_;
  bool bf16_ = true;
  bool f16_ = true;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_GROUPED_MATRIX_H_
