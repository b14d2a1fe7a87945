// Quantised checkpoints: tensors that are not matrices, and checkpoints that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/checkpoint/quantized_weights.h"
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

// ---- Tensors that are not matrices ----

TEST_F(QuantizedWeightsTest, KeepsTensorsThatAreNotQuantised) {
  const ModuleNumbers numbers = MakeNumbers({.rows = 8, .cols = 32}, 3);
  SafetensorsBuilder file;
  AddGptq(&file, "a.b", numbers);
  AddGptq(&file, "lm_head", numbers);
  file.AddFloats("a.c.weight", "BF16", {2, 2}, {1, 2, 3, 4});
  file.AddFloats("a.b.bias", "F16", {8}, std::vector<float>(8, 0.0f));
  file.AddFloats("a.c.bias", "F16", {2}, {0, 0});
  file.AddFloats("lm_head.bias", "F16", {8}, {0, 0, 0, 0, 0, 0, 0, 1});
  ASSERT_OK_AND_ASSIGN(const auto opened, Open(file, GptqSection(4, -1)));
  const Weights& weights = *opened;
  // An all-zero bias can be read by name but is not listed; other biases are listed.
  EXPECT_THAT(weights.names(), ElementsAre("a.b.weight", "a.c.bias", "a.c.weight", "lm_head.bias",
                                           "lm_head.weight"));
  EXPECT_EQ(weights.quantization(), "gptq: 2 matrices as q4_0");
  EXPECT_TRUE(weights.Get("a.b.bias", {8}).ok());
  EXPECT_TRUE(weights.Has("a.b.weight") && weights.Has("a.c.weight"));
  EXPECT_FALSE(weights.Has("a.b.qweight") || weights.Has("a.b.g_idx"));
  EXPECT_TRUE(weights.IsMade("a.b.weight"));
  EXPECT_FALSE(weights.IsMade("a.c.weight"));
  EXPECT_EQ(weights.num_elements("a.b.weight"), 8 * 32);
  EXPECT_EQ(weights.Where("a.b.weight"),
            absl::StrCat(folder_, "/model.safetensors: tensor \"a.b.qweight\""));
  EXPECT_THAT(weights.files(),
              ElementsAre(EndsWith("/model.safetensors"), EndsWith("/config.json")));
  const auto plain = weights.Get("a.c.weight", {2, 2});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->dtype, DType::kBF16);
  const absl::Status wrong = weights.Get("a.b.weight", {32, 8}).status();
  EXPECT_THAT(
      std::string(wrong.message()),
      EndsWith("tensor \"a.b.qweight\": shape: found numbers of [8, 32], allowed: [32, 8]"));
  EXPECT_EQ(weights.Get("a.d.weight", {1, 1}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(QuantizedWeightsTest, KeepsMadeMatricesUntilForgotten) {
  const ModuleNumbers numbers = MakeNumbers({.rows = 8, .cols = 32}, 3);
  SafetensorsBuilder file;
  AddGptq(&file, "m", numbers);
  const auto opened = Open(file, GptqSection(4, -1));
  const Weights& weights = **opened;
  const void* const first = weights.Get("m.weight", {8, 32})->data;
  EXPECT_EQ(weights.Get("m.weight", {8, 32})->data, first);
  weights.Forget("m.weight");
  weights.Forget("m.weight");
  EXPECT_EQ(Values(weights, 8, 32, DType::kQ4_0), numbers.Weights());
}

// More elements than one thread makes, and unaligned data.
TEST_F(QuantizedWeightsTest, MakesLargeMatricesWithThreads) {
  const ModuleNumbers numbers = MakeNumbers(
      {.rows = 1100, .cols = 1024, .group_size = 128, .min_zero = 1, .max_zero = 15}, 9);
  SafetensorsBuilder file;
  AddGptq(&file, "m", numbers);
  file.Add("a", "U8", {1}, std::vector<uint8_t>{1});  // moves the rest by a byte
  ExpectWeights(file, GptqSection(4, 128), numbers.Weights(), 1100, DType::kQ5_0, DType::kF32);
}

TEST_F(QuantizedWeightsTest, ReadsModulesAcrossShards) {
  const ModuleNumbers numbers = MakeNumbers({.rows = 8, .cols = 32}, 3);
  SafetensorsBuilder whole;
  AddGptq(&whole, "m", numbers);
  Json index = Json::object();
  int shard = 0;
  for (const auto& [name, tensor] : whole.tensors()) {
    SafetensorsBuilder file;
    file[name] = tensor;
    index[name] = absl::StrCat("s", ++shard, ".safetensors");
    Write(index[name], file.Bytes());
  }
  Write("model.safetensors.index.json", Json{{"weight_map", index}}.dump());
  Write("config.json", Json{{"quantization_config", GptqSection(4, -1)}}.dump());
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
  EXPECT_EQ(Values(*weights, 8, 32, DType::kQ4_0), numbers.Weights());
}

TEST_F(QuantizedWeightsTest, OmitsScalesOfActivationsAndCaches) {
  SafetensorsBuilder file;
  file.Add("l.self_attn.k_proj.weight", "F8_E4M3", {1, 1}, std::vector<uint8_t>{56});
  file.AddFloats("l.self_attn.k_proj.weight_scale", "F32", {}, {1});
  for (const char* name : {"l.self_attn.k_proj.input_scale", "l.self_attn.k_proj.k_scale",
                           "l.self_attn.k_proj.output_scale", "l.self_attn.kv_scale",
                           "l.self_attn.k_proj.activation_scale"}) {
    file.AddFloats(name, "F32", {}, {1});
  }
  Write("model.safetensors", file.Bytes());
  Write("hf_quant_config.json",
        R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8",
                "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
  EXPECT_THAT(weights->names(), ElementsAre("l.self_attn.k_proj.weight"));
  EXPECT_EQ(weights->quantization(),
            "modelopt: 1 matrix dequantised to bfloat16 (numbers of F8_E4M3)");
}

// ---- Refusals ----

TEST_F(QuantizedWeightsTest, NamesTheMalformedGptqTensor) {
  SafetensorsBuilder good;
  AddGptq(&good, "m", MakeNumbers({.rows = 16, .cols = 64, .group_size = 32}, 1));
  const auto refuse = [&](const std::function<void(SafetensorsBuilder*)>& spoil,
                          const Json& section, const std::string& says) {
    SafetensorsBuilder file = good;
    spoil(&file);
    ExpectRefused(file, section, says);
  };
  const Json section = GptqSection(4, 32);
  const Json act_order = GptqSection(4, 32, /*desc_act=*/true);
  const Json asymmetric = GptqSection(4, 32, false, /*sym=*/false);
  const auto remove = [](const char* name) {
    return [name](SafetensorsBuilder* file) { file->Remove(name); };
  };
  const auto retype = [](const char* name, const char* dtype) {
    return [=](SafetensorsBuilder* file) { (*file)[name].dtype = dtype; };
  };
  const auto reshape = [](const char* name, std::vector<int64_t> shape) {
    return [=](SafetensorsBuilder* file) { (*file)[name].shape = shape; };
  };
  refuse(remove("m.scales"), section,
         "tensor \"m.scales\": not found in any file, needed next to \"m.qweight\"");
  refuse(remove("m.qzeros"), asymmetric, "tensor \"m.qzeros\": not found in any file");
  refuse(remove("m.g_idx"), act_order, "tensor \"m.g_idx\": not found in any file");
  refuse(retype("m.qweight", "F32"), section,
         "tensor \"m.qweight\": dtype: found F32, allowed: I32");
  refuse(retype("m.scales", "I16"), section,
         "tensor \"m.scales\": dtype: found I16, allowed: F16, BF16, F32");
  refuse(reshape("m.qweight", {16, 8}), section,
         "tensor \"m.qweight\": shape: found [16,8], allowed: [8, outputs], 4 bits of 64 inputs");
  refuse(reshape("m.qweight", {128}), section,
         "tensor \"m.qweight\": shape: found [128], allowed: two sizes from 1 to ");
  refuse(reshape("m.scales", {16, 2}), section,
         "tensor \"m.scales\": shape: found [16,2], allowed: [2, 16]");
  refuse(reshape("m.qzeros", {4, 1}), section,
         "tensor \"m.qzeros\": shape: found [4,1], allowed: [2, 2]");
  refuse(reshape("m.g_idx", {2, 32}), section,
         "tensor \"m.g_idx\": shape: found [2,32], allowed: [inputs]");
  refuse([](SafetensorsBuilder*) {}, GptqSection(4, 128),
         "tensor \"m.scales\": shape: found [2,16], allowed: [1, 16]");
  refuse([](SafetensorsBuilder*) {}, GptqSection(8, 32),
         "tensor \"m.qweight\": shape: found [8,16], allowed: [16, outputs], 8 bits");
  for (const int32_t group : {2, -1}) {
    refuse(
        [&](SafetensorsBuilder* file) {
          std::memcpy((*file)["m.g_idx"].data.data() + 40, &group, sizeof(group));
        },
        section,
        absl::StrCat("tensor \"m.g_idx\": an element: found ", group,
                     ", allowed: groups from 0 to 1"));
  }
  refuse(
      [](SafetensorsBuilder* file) {
        file->AddFloats("m.weight", "F16", {1, 1}, {1});
      },
      section, "tensor \"m.weight\": found next to \"m.qweight\", allowed: one of the two");
}

TEST_F(QuantizedWeightsTest, NamesMalformedTensorsOfOtherMethods) {
  SafetensorsBuilder awq;
  AddAwq(&awq, "m", MakeNumbers({.rows = 16, .cols = 64, .group_size = 32}, 1));
  SafetensorsBuilder file = awq;
  file.Remove("m.qzeros");
  ExpectRefused(file, AwqSection(32), "tensor \"m.qzeros\": not found in any file");
  file = awq;
  file["m.qzeros"].shape = {4, 1};
  ExpectRefused(file, AwqSection(32), "tensor \"m.qzeros\": shape: found [4,1], allowed: [2, 2]");
  ExpectRefused(awq, AwqSection(16), "tensor \"m.scales\": shape: found [2,16], allowed: [4, 16]");

  const Json asymmetric = CompressedSection(
      "pack-quantized",
      {{"num_bits", 4}, {"type", "int"}, {"group_size", 32}, {"symmetric", false}});
  SafetensorsBuilder packed;
  AddPacked(&packed, "m", MakeNumbers({.rows = 16, .cols = 64, .group_size = 32}, 1), true);
  ASSERT_TRUE(Open(packed, asymmetric).ok());
  for (const char* name : {"m.weight_scale", "m.weight_shape", "m.weight_zero_point"}) {
    file = packed;
    file.Remove(name);
    ExpectRefused(file, asymmetric, absl::StrCat("tensor \"", name, "\": not found in any file"));
  }
  file = packed;
  file.Add("m.weight_shape", "I64", {2}, std::vector<int64_t>{16, 65});
  ExpectRefused(file, asymmetric,
                "tensor \"m.weight_packed\": shape: found [16,8], allowed: [16, 9], as ");
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{15, 64}, {16, 0}, {16, -3}, {16, 1 << 20}, {-1, 64}}) {
    file.Add("m.weight_shape", "I64", {2}, shape);
    ExpectRefused(file, asymmetric, "tensor \"m.weight_shape\": an element: found ");
  }
  file = packed;
  file["m.weight_zero_point"].shape = {4, 1};
  ExpectRefused(file, asymmetric,
                "tensor \"m.weight_zero_point\": shape: found [4,1], allowed: [2, 2]");
  file = packed;
  file["m.weight_scale"].shape = {2, 16};
  ExpectRefused(file, asymmetric,
                "tensor \"m.weight_scale\": shape: found [2,16], allowed: [16, 2], as ");
  ExpectRefused(packed, CompressedSection("float-quantized", {{"num_bits", 8}, {"type", "float"}}),
                "tensor \"m.weight_packed\": shape: found [16,8], allowed: none, as ");

  SafetensorsBuilder fp8;
  fp8.Add("m.weight", "F8_E4M3", {4, 4}, std::vector<uint8_t>(16, 56));
  ExpectRefused(fp8, Fp8Section(2, 2), "tensor \"m.weight_scale\": not found in any file");
  fp8.AddFloats("m.weight_scale_inv", "F32", {2, 2}, {1, 1, 1, 1});
  ASSERT_TRUE(Open(fp8, Fp8Section(2, 2)).ok());
  ExpectRefused(fp8, Fp8Section(4, 1),
                "tensor \"m.weight_scale_inv\": shape: found [2,2], allowed: one element, [4], "
                "[4, 1], [1, 4]");
  fp8["m.weight_scale_inv"].dtype = "U32";
  ExpectRefused(fp8, Fp8Section(2, 2), "dtype: found U32, allowed: F16, BF16, F32");
}

}  // namespace
}  // namespace tandem
