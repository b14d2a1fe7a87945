// For tests: modules of quantised checkpoints, made from numbers, and the weights that they encode.
// The packing is implemented again from the formats' definitions, one number at a time.
#ifndef TANDEM_TESTS_QUANTIZED_MODULES_H_
#define TANDEM_TESTS_QUANTIZED_MODULES_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "tandem/json_value.h"
#include "tests/safetensors_builder.h"

namespace tandem {

// The numbers of a matrix: weight[r][c] = scale[r][g] * (code[r][c] - zero[r][g]), where g is the
// group of c.
struct ModuleNumbers {
  int rows = 0;
  int cols = 0;
  int bits = 4;
  int groups = 1;
  std::vector<int> group_of{};  // [cols]
  std::vector<int> codes{};     // [rows, cols]
  std::vector<int> zeros{};     // [rows, groups]
  std::vector<float> scales{};  // [rows, groups]

  int code(int r, int c) const { return codes[r * cols + c]; }
  int zero(int r, int g) const { return zeros[r * groups + g]; }
  float scale(int r, int g) const { return scales[r * groups + g]; }
  std::vector<float> Weights() const {
    std::vector<float> weights;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) {
        const int g = group_of[c];
        weights.push_back(scale(r, g) * static_cast<float>(code(r, c) - zero(r, g)));
      }
    }
    return weights;
  }
};

struct RandomNumbers {
  int rows = 0;
  int cols = 0;
  int bits = 4;
  int group_size = 0;  // 0 for one group
  int min_zero = -1;   // -1 for the middle everywhere
  int max_zero = -1;
  std::string scale_dtype = "F16";  // dtype that scales are rounded to
  float scale = 0.01f;
  bool is_shuffled = false;  // groups in act order
};

inline ModuleNumbers MakeNumbers(const RandomNumbers& wanted, unsigned seed) {
  std::mt19937 random(seed);
  ModuleNumbers numbers{.rows = wanted.rows, .cols = wanted.cols, .bits = wanted.bits};
  const int size = wanted.group_size == 0 ? wanted.cols : wanted.group_size;
  numbers.groups = (wanted.cols + size - 1) / size;
  for (int c = 0; c < wanted.cols; ++c) numbers.group_of.push_back(c / size);
  if (wanted.is_shuffled) {
    for (int c = wanted.cols - 1; c > 0; --c) {
      std::swap(numbers.group_of[c], numbers.group_of[random() % (c + 1)]);
    }
  }
  for (int i = 0; i < wanted.rows * wanted.cols; ++i) {
    numbers.codes.push_back(static_cast<int>(random() % (1u << wanted.bits)));
  }
  for (int i = 0; i < wanted.rows * numbers.groups; ++i) {
    const int middle = 1 << (wanted.bits - 1);
    numbers.zeros.push_back(
        wanted.min_zero < 0 ? middle
                            : wanted.min_zero + static_cast<int>(random() % (wanted.max_zero -
                                                                             wanted.min_zero + 1)));
    const float scale = wanted.scale * (0.5f + static_cast<float>(random() % 1000) / 1000.0f);
    numbers.scales.push_back(wanted.scale_dtype == "F32"   ? scale
                             : wanted.scale_dtype == "F16" ? F16ToFloat(FloatToF16(scale))
                                                           : Bf16ToFloat(FloatToBf16(scale)));
  }
  return numbers;
}

// A matrix of words [rows, cols] that numbers are packed into bit by bit.
class WordGrid {
 public:
  WordGrid(int rows, int cols) : rows_(rows), cols_(cols), words_(size_t(rows) * cols) {}

  // Stores number `index` of a stream of numbers of `bits` bits, along a row or down a column.
  void PutAlongRow(int row, int index, int bits, int value) {
    for (int b = 0; b < bits; ++b) {
      const int at = index * bits + b;
      words_[size_t(row) * cols_ + at / 32] |= uint32_t(value >> b & 1) << at % 32;
    }
  }
  void PutDownColumn(int col, int index, int bits, int value) {
    for (int b = 0; b < bits; ++b) {
      const int at = index * bits + b;
      words_[size_t(at / 32) * cols_ + col] |= uint32_t(value >> b & 1) << at % 32;
    }
  }
  void AddTo(SafetensorsBuilder* file, const std::string& name) const {
    file->Add(name, "I32", {rows_, cols_}, words_);
  }

 private:
  int rows_;
  int cols_;
  std::vector<uint32_t> words_;
};

inline int WordsOf(int count, int bits) { return (count * bits + 31) / 32; }

// "scales" [groups, out].
inline std::vector<float> ScalesByGroup(const ModuleNumbers& numbers) {
  std::vector<float> scales;
  for (int g = 0; g < numbers.groups; ++g) {
    for (int r = 0; r < numbers.rows; ++r) scales.push_back(numbers.scale(r, g));
  }
  return scales;
}

// Version 1 stores each zero minus one. REQUIRES: with version 1, every zero is at least 1.
inline void AddGptq(SafetensorsBuilder* file, const std::string& module,
                    const ModuleNumbers& numbers, int version = 1) {
  const int bits = numbers.bits;
  WordGrid codes(WordsOf(numbers.cols, bits), numbers.rows);
  WordGrid zeros(numbers.groups, WordsOf(numbers.rows, bits));
  for (int r = 0; r < numbers.rows; ++r) {
    for (int c = 0; c < numbers.cols; ++c) codes.PutDownColumn(r, c, bits, numbers.code(r, c));
    for (int g = 0; g < numbers.groups; ++g) {
      zeros.PutAlongRow(g, r, bits, numbers.zero(r, g) - (version == 1 ? 1 : 0));
    }
  }
  codes.AddTo(file, module + ".qweight");
  zeros.AddTo(file, module + ".qzeros");
  file->AddFloats(module + ".scales", "F16", {numbers.groups, numbers.rows},
                  ScalesByGroup(numbers));
  file->Add(module + ".g_idx", "I32", {numbers.cols},
            std::vector<int32_t>(numbers.group_of.begin(), numbers.group_of.end()));
}

// REQUIRES: 4 bits, a number of rows that is a multiple of 8.
inline void AddAwq(SafetensorsBuilder* file, const std::string& module,
                   const ModuleNumbers& numbers) {
  constexpr int kColumnAt[] = {0, 2, 4, 6, 1, 3, 5, 7};  // of each position in a word
  WordGrid codes(numbers.cols, numbers.rows / 8);
  WordGrid zeros(numbers.groups, numbers.rows / 8);
  for (int r = 0; r < numbers.rows; r += 8) {
    for (int place = 0; place < 8; ++place) {
      const int row = r + kColumnAt[place];
      for (int c = 0; c < numbers.cols; ++c) {
        codes.PutAlongRow(c, r + place, 4, numbers.code(row, c));
      }
      for (int g = 0; g < numbers.groups; ++g) {
        zeros.PutAlongRow(g, r + place, 4, numbers.zero(row, g));
      }
    }
  }
  codes.AddTo(file, module + ".qweight");
  zeros.AddTo(file, module + ".qzeros");
  file->AddFloats(module + ".scales", "F16", {numbers.groups, numbers.rows},
                  ScalesByGroup(numbers));
}

// compressed-tensors, pack-quantized.
inline void AddPacked(SafetensorsBuilder* file, const std::string& module,
                      const ModuleNumbers& numbers, bool has_zeros,
                      const std::string& scale_dtype = "BF16") {
  const int bits = numbers.bits;
  WordGrid codes(numbers.rows, WordsOf(numbers.cols, bits));
  WordGrid zeros(WordsOf(numbers.rows, bits), numbers.groups);
  for (int r = 0; r < numbers.rows; ++r) {
    for (int c = 0; c < numbers.cols; ++c) codes.PutAlongRow(r, c, bits, numbers.code(r, c));
    for (int g = 0; g < numbers.groups; ++g) zeros.PutDownColumn(g, r, bits, numbers.zero(r, g));
  }
  codes.AddTo(file, module + ".weight_packed");
  if (has_zeros) zeros.AddTo(file, module + ".weight_zero_point");
  file->AddFloats(module + ".weight_scale", scale_dtype, {numbers.rows, numbers.groups},
                  numbers.scales);
  file->Add(module + ".weight_shape", "I64", {2}, std::vector<int64_t>{numbers.rows, numbers.cols});
}

// compressed-tensors, int-quantized. REQUIRES: 8 bits.
inline void AddInt8(SafetensorsBuilder* file, const std::string& module,
                    const ModuleNumbers& numbers, bool has_zeros = false) {
  std::vector<int8_t> bytes;
  std::vector<int8_t> zeros;
  for (const int code : numbers.codes) bytes.push_back(static_cast<int8_t>(code - 128));
  for (const int zero : numbers.zeros) zeros.push_back(static_cast<int8_t>(zero - 128));
  file->Add(module + ".weight", "I8", {numbers.rows, numbers.cols}, bytes);
  file->AddFloats(module + ".weight_scale", "BF16", {numbers.rows, numbers.groups}, numbers.scales);
  if (has_zeros) {
    file->Add(module + ".weight_zero_point", "I8", {numbers.rows, numbers.groups}, zeros);
  }
}

// The "quantization_config" of each format.
inline SortedJson GptqSection(int bits, int group_size, bool desc_act = false, bool sym = true) {
  return {{"quant_method", "gptq"},
          {"bits", bits},
          {"group_size", group_size},
          {"desc_act", desc_act},
          {"sym", sym}};
}
inline SortedJson AwqSection(int group_size) {
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", group_size},
          {"zero_point", true},
          {"version", "gemm"}};
}
// `weights` is that of the only group.
inline SortedJson CompressedSection(const std::string& format, const SortedJson& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}
inline SortedJson Fp8Section(int block_rows, int block_cols) {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"weight_block_size", {block_rows, block_cols}}};
}

}  // namespace tandem

#endif  // TANDEM_TESTS_QUANTIZED_MODULES_H_
