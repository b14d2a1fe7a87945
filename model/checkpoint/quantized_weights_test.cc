#include "model/checkpoint/quantized_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/checkpoint/quantized_weights_testing.h"
#include "tests/quantized_modules.h"
#include "tests/safetensors_builder.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- Each definition, computed by hand ----

TEST_F(QuantizedWeightsTest, GptqByHand) {
  SafetensorsBuilder file;
  // Column 0 holds 0 to 7, column 1 holds 15 down to 8, columns 2 to 7 the middle of the range.
  std::vector<uint32_t> words(8, 0x88888888);
  words[0] = 0x76543210;
  words[1] = 0x89ABCDEF;
  file.Add("m.qweight", "I32", {1, 8}, words);
  file.Add("m.qzeros", "I32", {1, 1}, std::vector<uint32_t>{0x77777767});  // 8, 7, 8, 8, ...
  file.AddFloats("m.scales", "F16", {1, 8}, {0.5f, 2, 1, 1, 1, 1, 1, 1});
  ASSERT_OK_AND_ASSIGN(const auto weights, Open(file, GptqSection(4, 128)));
  const std::vector<float> values = Values(*weights, 8, 8, DType::kBF16);
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 16),
              ElementsAre(-4, -3.5f, -3, -2.5f, -2, -1.5f, -1, -0.5f,  //
                          16, 14, 12, 10, 8, 6, 4, 2));
  for (size_t i = 16; i < values.size(); ++i) EXPECT_EQ(values[i], 0);

  // Read as version 2, the same words give zeros that are less by one.
  Json section = GptqSection(4, 128);
  section["checkpoint_format"] = "gptq_v2";
  const std::vector<float> others = Values(**Open(file, section), 8, 8, DType::kBF16);
  EXPECT_THAT(std::vector(others.begin(), others.begin() + 10),
              ElementsAre(-3.5f, -3, -2.5f, -2, -1.5f, -1, -0.5f, 0, 18, 16));
}

TEST_F(QuantizedWeightsTest, AwqByHand) {
  SafetensorsBuilder file;
  // Outputs 0 to 7 of input 0 are 0, 4, 1, 5, 2, 6, 3, 7; those of input 1 are all 15.
  file.Add("m.qweight", "I32", {2, 1}, std::vector<uint32_t>{0x76543210, 0xFFFFFFFF});
  // Zeros of outputs 0 to 7: 1, 0, 2, 0, 0, 0, 0, 3.
  file.Add("m.qzeros", "I32", {1, 1}, std::vector<uint32_t>{0x30000021});
  file.AddFloats("m.scales", "F16", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 0.25f});
  ASSERT_OK_AND_ASSIGN(const auto weights, Open(file, AwqSection(-1)));
  EXPECT_THAT(Values(*weights, 8, 2, DType::kBF16),
              ElementsAre(-1, 14, 4, 15, -1, 13, 5, 15, 2, 15, 6, 15, 3, 15, 1, 3));
}

TEST_F(QuantizedWeightsTest, PackedByHand) {
  SafetensorsBuilder file;
  file.Add("m.weight_packed", "I32", {2, 1}, std::vector<uint32_t>{0x76543210, 0xFEDCBA98});
  file.Add("m.weight_shape", "I64", {2}, std::vector<int64_t>{2, 8});
  file.AddFloats("m.weight_scale", "BF16", {2, 2}, {1, 0.5f, 2, 1});
  Json weights_section = {{"num_bits", 4},       {"type", "int"},   {"symmetric", true},
                          {"strategy", "group"}, {"group_size", 4}, {"dynamic", false}};
  ASSERT_OK_AND_ASSIGN(const auto symmetric,
                       Open(file, CompressedSection("pack-quantized", weights_section)));
  EXPECT_THAT(Values(*symmetric, 2, 8, DType::kBF16),
              ElementsAre(-8, -7, -6, -5, -2, -1.5f, -1, -0.5f, 0, 2, 4, 6, 4, 5, 6, 7));

  // The zero points are -8 and 7 in the first group, 0 and 1 in the second.
  file.Add("m.weight_zero_point", "I32", {1, 2}, std::vector<uint32_t>{0xF0, 0x98});
  weights_section["symmetric"] = false;
  ASSERT_OK_AND_ASSIGN(const auto asymmetric,
                       Open(file, CompressedSection("pack-quantized", weights_section)));
  EXPECT_THAT(Values(*asymmetric, 2, 8, DType::kBF16),
              ElementsAre(0, 1, 2, 3, -2, -1.5f, -1, -0.5f, -14, -12, -10, -8, 3, 4, 5, 6));
}

TEST_F(QuantizedWeightsTest, Int8ByHand) {
  SafetensorsBuilder file;
  file.Add("m.weight", "I8", {2, 2}, std::vector<int8_t>{-128, 127, 1, -1});
  file.AddFloats("m.weight_scale", "BF16", {2, 1}, {0.5f, 4});
  const Json section = CompressedSection(
      "int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}});
  ASSERT_OK_AND_ASSIGN(const auto weights, Open(file, section));
  EXPECT_THAT(Values(*weights, 2, 2, DType::kBF16), ElementsAre(-64, 63.5f, 4, -4));
}

TEST_F(QuantizedWeightsTest, Fp8ByHand) {
  EXPECT_EQ(E4m3ToFloat(0x38), 1.0f);
  EXPECT_EQ(E4m3ToFloat(0xB8), -1.0f);
  EXPECT_EQ(E4m3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(E4m3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(E4m3ToFloat(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(E4m3ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(E4m3ToFloat(0x49), 4.5f);
  EXPECT_TRUE(std::signbit(E4m3ToFloat(0x80)) && E4m3ToFloat(0x80) == 0.0f);
  EXPECT_TRUE(std::isnan(E4m3ToFloat(0x7F)) && std::isnan(E4m3ToFloat(0xFF)));

  SafetensorsBuilder file;
  // Three rows of five ones in blocks of 2 by 2; the last blocks are narrower.
  file.Add("m.weight", "F8_E4M3", {3, 5}, std::vector<uint8_t>(15, 0x38));
  file.AddFloats("m.weight_scale_inv", "F32", {2, 3}, {1, 2, 4, 8, 16, 32});
  ASSERT_OK_AND_ASSIGN(const auto weights, Open(file, Fp8Section(2, 2)));
  EXPECT_THAT(Values(*weights, 3, 5, DType::kBF16),
              ElementsAre(1, 1, 2, 2, 4, 1, 1, 2, 2, 4, 8, 8, 16, 16, 32));
}

// ---- Many numbers, in both forms ----

struct GptqCase {
  RandomNumbers numbers;
  DType kept;
  DType floats = DType::kF32;
  int version = 1;
  bool desc_act = false;
};

TEST_F(QuantizedWeightsTest, GptqBecomesBlocksThatHoldItsNumbers) {
  const GptqCase cases[] = {
      {{.rows = 72, .cols = 256, .group_size = 128}, DType::kQ4_0},
      {{.rows = 8, .cols = 128}, DType::kQ4_0},
      {{.rows = 40, .cols = 96, .group_size = 32, .min_zero = 1, .max_zero = 15}, DType::kQ5_0},
      {{.rows = 40, .cols = 96, .group_size = 64, .min_zero = 0, .max_zero = 15},
       DType::kQ5_0,
       DType::kF32,
       2},
      {{.rows = 65, .cols = 64, .bits = 2, .group_size = 32, .min_zero = 1, .max_zero = 3},
       DType::kQ4_0},
      {{.rows = 32, .cols = 64, .bits = 3, .group_size = 32, .min_zero = 1, .max_zero = 7},
       DType::kQ4_0},
      {{.rows = 33, .cols = 64, .bits = 3, .min_zero = 0, .max_zero = 7},
       DType::kQ4_0,
       DType::kF32,
       2},
      {{.rows = 64, .cols = 128, .bits = 8, .group_size = 32}, DType::kQ8_0},
      // Numbers from -200 to 155, which exceed a byte.
      {{.rows = 16, .cols = 64, .bits = 8, .min_zero = 100, .max_zero = 200}, DType::kF32},
      {{.rows = 16, .cols = 96, .group_size = 48}, DType::kF32},
      {{.rows = 16, .cols = 96, .group_size = 16}, DType::kF32},
      {{.rows = 16, .cols = 48, .group_size = 16}, DType::kF32},
      {{.rows = 16, .cols = 64, .group_size = 32, .is_shuffled = true},
       DType::kF32,
       DType::kF32,
       1,
       true},
      // The last group is partial.
      {{.rows = 24, .cols = 160, .group_size = 128}, DType::kQ4_0},
      // A module with fewer inputs than a group.
      {{.rows = 24, .cols = 64, .group_size = 128}, DType::kQ4_0}};
  unsigned seed = 0;
  for (const GptqCase& c : cases) {
    SCOPED_TRACE(seed);
    const ModuleNumbers numbers = MakeNumbers(c.numbers, ++seed);
    SafetensorsBuilder file;
    AddGptq(&file, "m", numbers, c.version);
    Json section =
        GptqSection(c.numbers.bits, c.numbers.group_size == 0 ? -1 : c.numbers.group_size,
                    c.desc_act, c.numbers.min_zero < 0);
    if (c.version == 2) section["format"] = "gptq_v2";
    ExpectWeights(file, section, numbers.Weights(), c.numbers.rows, c.kept, c.floats);
    if (c.desc_act) continue;
    // g_idx is optional if groups are in order, and so are the zeros of symmetric matrices.
    file.Remove("m.g_idx");
    if (c.numbers.min_zero < 0) file.Remove("m.qzeros");
    ExpectWeights(file, section, numbers.Weights(), c.numbers.rows, c.kept, c.floats);
  }
}

// Version 1 subtracts one from each zero of a word with a single subtraction. A zero of 0 borrows
// from its neighbour; adding the ones back to the word undoes the borrow.
TEST_F(QuantizedWeightsTest, GptqZerosOfZeroBorrow) {
  const ModuleNumbers numbers =
      MakeNumbers({.rows = 16, .cols = 32, .min_zero = 0, .max_zero = 3}, 5);
  SafetensorsBuilder file;
  AddGptq(&file, "m", numbers, 2);
  auto& zeros = file["m.qzeros"].data;
  for (size_t at = 0; at < zeros.size(); at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, zeros.data() + at, sizeof(word));
    word -= 0x11111111;
    std::memcpy(zeros.data() + at, &word, sizeof(word));
  }
  ExpectWeights(file, GptqSection(4, -1, false, false), numbers.Weights(), 16, DType::kQ5_0,
                DType::kF32);
}

TEST_F(QuantizedWeightsTest, GptqModulesMayHaveOtherBitsAndGroups) {
  const ModuleNumbers numbers =
      MakeNumbers({.rows = 32, .cols = 128, .bits = 8, .group_size = 64}, 8);
  SafetensorsBuilder file;
  AddGptq(&file, "m", numbers);
  Json section = GptqSection(4, 32);
  ExpectRefused(file, section,
                "tensor \"m.qweight\": shape: found [32,32], allowed: [16, outputs]");
  section["dynamic"] = {{"+:.*m", {{"bits", 8}, {"group_size", 64}}}};
  ExpectWeights(file, section, numbers.Weights(), 32, DType::kQ8_0, DType::kF32);
}

TEST_F(QuantizedWeightsTest, AwqBecomesBlocksThatHoldItsNumbers) {
  const std::pair<RandomNumbers, DType> cases[] = {
      {{.rows = 72, .cols = 256, .group_size = 128, .min_zero = 0, .max_zero = 15}, DType::kQ5_0},
      {{.rows = 24, .cols = 96, .group_size = 32}, DType::kQ4_0},
      {{.rows = 8, .cols = 44, .group_size = 22, .min_zero = 0, .max_zero = 15}, DType::kF32},
      {{.rows = 136, .cols = 64, .min_zero = 0, .max_zero = 15}, DType::kQ5_0}};
  unsigned seed = 20;
  for (const auto& [wanted, kept] : cases) {
    SCOPED_TRACE(seed);
    const ModuleNumbers numbers = MakeNumbers(wanted, ++seed);
    SafetensorsBuilder file;
    AddAwq(&file, "m", numbers);
    ExpectWeights(file, AwqSection(wanted.group_size == 0 ? -1 : wanted.group_size),
                  numbers.Weights(), wanted.rows, kept, DType::kF32);
  }
}

struct PackedCase {
  RandomNumbers numbers;
  DType kept;
  DType floats;
};

TEST_F(QuantizedWeightsTest, PackedBecomesBlocksThatHoldItsNumbers) {
  // f16 holds the products of a bf16 scale (8 significant bits) and a number of at most 3 bits.
  const PackedCase cases[] = {
      {{.rows = 40, .cols = 256, .group_size = 128, .scale_dtype = "BF16"},
       DType::kQ4_0,
       DType::kF16},
      {{.rows = 40, .cols = 96, .scale_dtype = "BF16"}, DType::kQ4_0, DType::kF16},
      {{.rows = 40,
        .cols = 64,
        .group_size = 32,
        .min_zero = 0,
        .max_zero = 15,
        .scale_dtype = "BF16"},
       DType::kQ5_0,
       DType::kF32},
      {{.rows = 40, .cols = 128, .bits = 8, .scale_dtype = "BF16"}, DType::kQ8_0, DType::kF32},
      {{.rows = 40, .cols = 100, .bits = 8, .scale_dtype = "BF16"}, DType::kF32, DType::kF32},
      {{.rows = 9, .cols = 64, .bits = 5, .group_size = 32, .scale_dtype = "BF16"},
       DType::kQ5_0,
       DType::kF32},
      {{.rows = 9, .cols = 64, .bits = 7, .min_zero = 0, .max_zero = 127, .scale_dtype = "BF16"},
       DType::kQ8_0,
       DType::kF32},
      {{.rows = 9, .cols = 70, .bits = 3, .group_size = 35, .scale_dtype = "F16"},
       DType::kF32,
       DType::kF32},
      {{.rows = 9, .cols = 64, .bits = 1, .group_size = 32, .scale_dtype = "BF16"},
       DType::kQ4_0,
       DType::kBF16},
      // Scales of f32 that f16 cannot hold, and scales of bf16 below f16's range.
      {{.rows = 8, .cols = 64, .group_size = 32, .scale_dtype = "F32"}, DType::kF32, DType::kF32},
      {{.rows = 8, .cols = 64, .group_size = 32, .scale_dtype = "BF16", .scale = 1e-6f},
       DType::kF32,
       DType::kF32},
      {{.rows = 8,
        .cols = 64,
        .group_size = 32,
        .scale_dtype = "BF16",
        .scale = 0.01f,
        .is_shuffled = true},
       DType::kF16,
       DType::kF16}};
  unsigned seed = 40;
  for (const PackedCase& c : cases) {
    SCOPED_TRACE(seed);
    const ModuleNumbers numbers = MakeNumbers(c.numbers, ++seed);
    const bool has_zeros = c.numbers.min_zero >= 0;
    SafetensorsBuilder file;
    AddPacked(&file, "m", numbers, has_zeros, c.numbers.scale_dtype);
    Json weights = {{"num_bits", c.numbers.bits},
                    {"type", "int"},
                    {"symmetric", !has_zeros},
                    {"strategy", c.numbers.group_size == 0 ? "channel" : "group"}};
    if (c.numbers.group_size > 0) weights["group_size"] = c.numbers.group_size;
    if (c.numbers.is_shuffled) {
      weights["actorder"] = "group";
      file.Add("m.weight_g_idx", "I32", {c.numbers.cols},
               std::vector<int32_t>(numbers.group_of.begin(), numbers.group_of.end()));
    } else {
      file.Add("m.weight_g_idx", "I32", {c.numbers.cols},
               std::vector<int32_t>(c.numbers.cols, -1));  // the same as absent
    }
    ExpectWeights(file, CompressedSection("pack-quantized", weights), numbers.Weights(),
                  c.numbers.rows, c.kept, c.floats);
  }
}

TEST_F(QuantizedWeightsTest, Int8BecomesBlocksThatHoldItsNumbers) {
  for (const int group_size : {0, 32, 24}) {
    const ModuleNumbers numbers = MakeNumbers(
        {.rows = 66, .cols = 96, .bits = 8, .group_size = group_size, .scale_dtype = "BF16"}, 70);
    SafetensorsBuilder file;
    AddInt8(&file, "m", numbers);
    Json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    if (group_size > 0) weights = {{"num_bits", 8}, {"type", "int"}, {"group_size", group_size}};
    ExpectWeights(file, CompressedSection("int-quantized", weights), numbers.Weights(), 66,
                  group_size == 24 ? DType::kF32 : DType::kQ8_0, DType::kF32);
  }
  const ModuleNumbers numbers = MakeNumbers(
      {.rows = 10, .cols = 64, .bits = 8, .min_zero = 120, .max_zero = 140, .scale_dtype = "BF16"},
      71);
  SafetensorsBuilder file;
  AddInt8(&file, "m", numbers, /*has_zeros=*/true);
  ExpectWeights(
      file,
      CompressedSection(
          "int-quantized",
          {{"num_bits", 8}, {"type", "int"}, {"symmetric", false}, {"strategy", "channel"}}),
      numbers.Weights(), 10, DType::kF32, DType::kF32);
}

// Every byte, multiplied with scales of each kind and dtype.
TEST_F(QuantizedWeightsTest, Fp8ReadsEveryKindOfScale) {
  constexpr int kRows = 70;
  constexpr int kCols = 256;
  std::vector<uint8_t> bytes;
  for (int i = 0; i < kRows * kCols; ++i) bytes.push_back(static_cast<uint8_t>(i * 7 % 255));
  for (uint8_t& byte : bytes) byte = byte == 127 ? 0 : byte;  // no NaN
  struct Case {
    std::vector<int64_t> shape;
    const char* name;
    int block_rows;
    int block_cols;
    Json section;
  };
  const auto compressed = [](const Json& more) {
    Json weights = {{"num_bits", 8}, {"type", "float"}};
    weights.update(more);
    return CompressedSection("float-quantized", weights);
  };
  const Json modelopt = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  Json blocks_unsaid = Fp8Section(1, 1);
  blocks_unsaid.erase("weight_block_size");
  Json one_scale = blocks_unsaid;
  one_scale["weight_block_size"] = nullptr;
  const Case cases[] = {
      {{}, "weight_scale", kRows, kCols, modelopt},
      {{1}, "weight_scale", kRows, kCols, compressed({{"strategy", "tensor"}})},
      {{1}, "weight_scale_inv", kRows, kCols, one_scale},
      {{kRows, 1}, "weight_scale", 1, kCols, compressed({{"strategy", "channel"}})},
      {{kRows}, "weight_scale", 1, kCols, {{"quant_method", "fbgemm_fp8"}}},
      {{kRows, 4}, "weight_scale", 1, 64, compressed({{"strategy", "group"}, {"group_size", 64}})},
      {{2, 3},
       "weight_scale",
       48,
       100,
       compressed({{"strategy", "block"}, {"block_structure", {48, 100}}})},
      {{1, 2}, "weight_scale_inv", 128, 128, blocks_unsaid},
      {{1, 1, 2, 1},
       "weight_scale",
       128,
       128,
       {{"quant_method", "modelopt"}, {"quant_algo", "FP8_PB_WO"}}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.section.dump());
    const int across = (kCols + c.block_cols - 1) / c.block_cols;
    std::vector<float> scales;
    int64_t count = 1;
    for (const int64_t size : c.shape) count *= size;
    for (int i = 0; i < count; ++i) {
      scales.push_back(Bf16ToFloat(FloatToBf16(0.003f * static_cast<float>(1 + i % 17) + 0.0001f)));
    }
    std::vector<float> wanted;
    for (int i = 0; i < kRows * kCols; ++i) {
      const int block = i / kCols / c.block_rows * across + i % kCols / c.block_cols;
      wanted.push_back(E4m3ToFloat(bytes[i]) * scales[block]);
    }
    for (const char* dtype : {"BF16", "F32"}) {
      SafetensorsBuilder file;
      file.Add("m.weight", "F8_E4M3", {kRows, kCols}, bytes);
      file.AddFloats(absl::StrCat("m.", c.name), dtype, c.shape, scales);
      file.AddFloats("m.input_scale", "F32", {}, {0.5f});
      ExpectWeights(file, c.section, wanted, kRows, DType::kF32, DType::kF32);
      EXPECT_THAT((*Open(file, c.section))->names(), ElementsAre("m.weight"));
    }
  }
}

TEST_F(QuantizedWeightsTest, UsesSixteenBitFloatsIfTheyAreExact) {
  const auto dtype_of = [&](const std::vector<float>& scales) {
    SafetensorsBuilder file;
    file.Add("m.weight", "F8_E4M3", {2, 3}, std::vector<uint8_t>{1, 126, 56, 57, 129, 0});
    file.AddFloats("m.weight_scale", "F32", {2}, scales);
    const auto weights = Open(file, {{"quant_method", "fbgemm_fp8"}});
    EXPECT_TRUE(weights.ok()) << weights.status();
    const DType dtype = (*weights)->Describe("m.weight", {2, 3})->dtype;
    const std::vector<float> values = Values(**weights, 2, 3, dtype);
    EXPECT_EQ(values, (std::vector<float>{0x1p-9f * scales[0], 448 * scales[0], scales[0],
                                          1.125f * scales[1], -0x1p-9f * scales[1], 0}));
    return dtype;
  };
  EXPECT_EQ(dtype_of({0.25f, 2}), DType::kBF16);       // a number of 4 bits times a scale of 1
  EXPECT_EQ(dtype_of({0x1p-120f, 1}), DType::kBF16);   // 2^-129, which is subnormal
  EXPECT_EQ(dtype_of({0.9375f, 2}), DType::kBF16);     // a scale of 4 bits
  EXPECT_EQ(dtype_of({0.96875f, 2}), DType::kF16);     // of 5
  EXPECT_EQ(dtype_of({0.9921875f, 0}), DType::kF16);   // of 7
  EXPECT_EQ(dtype_of({0.99609375f, 1}), DType::kF32);  // of 8
  EXPECT_EQ(dtype_of({0x1.Fp-14f, 1}), DType::kF32);   // 5 bits, the lowest 2^-27: below f16's
  EXPECT_EQ(dtype_of({192.0f, 1.5f}), DType::kBF16);
  EXPECT_EQ(dtype_of({1.9375f * 128, 1}), DType::kF32);  // 111,104: above f16's largest
}

}  // namespace
}  // namespace tandem
