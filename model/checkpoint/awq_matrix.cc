// AWQ, version gemm: "qweight" [inputs, outputs / 8], "qzeros" [groups, outputs / 8] and "scales"
// [groups, outputs]. A word of the first two holds eight 4-bit codes, lowest bits first, in the
// order of kAwqPlaces. Reference: AutoAWQ's linear modules.
#include <memory>

#include "base/status_macros.h"
#include "model/checkpoint/grouped_matrix.h"

namespace tandem {
namespace {

// The place within a word of the code of each of its eight outputs.
constexpr int kAwqPlaces[kNibblesPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};

// Transposes a matrix of bytes [8][8].
void Transpose8x8(uint64_t* rows) {
  const auto exchange = [rows](int distance, uint64_t mask) {
    const int shift = 8 * distance;
    for (int i = 0; i < kNibblesPerWord; ++i) {
      if (i & distance) continue;
      const uint64_t moved = ((rows[i] >> shift) ^ rows[i + distance]) & mask;
      rows[i] ^= moved << shift;
      rows[i + distance] ^= moved;
    }
  };
  exchange(4, 0x00000000FFFFFFFF);
  exchange(2, 0x0000FFFF0000FFFF);
  exchange(1, 0x00FF00FF00FF00FF);
}

class AwqMatrix final : public GroupedMatrix {
 public:
  AwqMatrix(int rows, int cols, const ModuleTensors& tensors, const GroupedLayout& layout,
            const std::byte* words, const std::byte* zeros)
      : GroupedMatrix(rows, cols, tensors, layout), words_(words), zeros_(zeros) {}

 private:
  // Reads eight inputs of eight outputs at a time.
  void ReadCodes(int first, int count, uint8_t* codes) const override {
    static_assert(kTileRows % kNibblesPerWord == 0);
    const int64_t row_words = rows() / kNibblesPerWord;  // words of one input
    for (int i = 0; i < cols(); i += kNibblesPerWord) {
      const int size = std::min(kNibblesPerWord, cols() - i);
      for (int row = 0; row < count; row += kNibblesPerWord) {
        uint64_t bytes[kNibblesPerWord] = {};  // one word per input; transposed, one per place
        for (int k = 0; k < size; ++k) {
          bytes[k] =
              SpreadNibbles(WordAt(words_, (i + k) * row_words + (first + row) / kNibblesPerWord));
        }
        Transpose8x8(bytes);
        for (int k = 0; k < kNibblesPerWord; ++k) {
          std::memcpy(codes + static_cast<size_t>(row + k) * cols() + i, &bytes[kAwqPlaces[k]],
                      size);
        }
      }
    }
  }

  void ReadZeros(int first, int count, int16_t* zeros) const override {
    const int64_t row_words = rows() / kNibblesPerWord;  // words of one group
    for (int row = first; row < first + count; ++row) {
      for (int group = 0; group < num_groups(); ++group) {
        const uint32_t word = WordAt(zeros_, group * row_words + row / kNibblesPerWord);
        *zeros++ = static_cast<int16_t>(word >> 4 * kAwqPlaces[row % kNibblesPerWord] & 15);
      }
    }
  }

  const std::byte* const words_;
  const std::byte* const zeros_;
};

}  // namespace

MatrixOrError OpenAwqMatrix(const StoredWeights& stored, const std::string& module,
                            const QuantizationConfig& config) {
  ModuleTensors tensors(stored, module);
  const WeightScheme& scheme = config.schemes[0];
  ASSIGN_OR_RETURN(const SafetensorsEntry* const words, tensors.GetMatrix("qweight", kWordDTypes));
  const int64_t inputs = words->shape[0];
  const int64_t outputs = words->shape[1] * kNibblesPerWord;
  const int64_t groups = scheme.group_size == 0 ? 1 : CeilDivide(inputs, scheme.group_size);
  GroupedLayout layout{.bits = 4,
                       .group_size = scheme.group_size,
                       .scales = nullptr,
                       .row_stride = 1,
                       .group_stride = outputs,
                       .group_of_input = nullptr};
  ASSIGN_OR_RETURN(layout.scales, tensors.Get("scales", kFloatDTypes, {groups, outputs}));
  ASSIGN_OR_RETURN(const SafetensorsEntry* const zeros,
                   tensors.Get("qzeros", kWordDTypes, {groups, words->shape[1]}));
  return GroupedMatrix::Finished(
      std::make_unique<AwqMatrix>(static_cast<int>(outputs), static_cast<int>(inputs), tensors,
                                  layout, words->bytes.data(), zeros->bytes.data()),
      tensors);
}

}  // namespace tandem
