#include "model/checkpoint/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Layout = QuantizationConfig::Layout;

// Returns the value as a file would give it; the integers of an initialiser are signed.
Json AsRead(const Json& value) { return Json::parse(value.dump()); }
absl::StatusOr<std::optional<QuantizationConfig>> Parse(const Json& section) {
  return ParseQuantization(AsRead({{"quantization_config", section}}), "f");
}
QuantizationConfig Parsed(const Json& section) {
  const auto config = Parse(section);
  EXPECT_TRUE(config.ok() && config->has_value()) << config.status();
  return config.ok() && config->has_value() ? **config : QuantizationConfig();
}
std::string ErrorOf(const Json& section) {
  const absl::Status status = Parse(section).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << section.dump();
  EXPECT_EQ(status.message().find('\n'), status.message().npos);
  return std::string(status.message());
}

// The published section of Qwen2.5-7B-Instruct-GPTQ-Int4.
Json PublishedGptq() {
  return Json::parse(R"({"batch_size": 1, "bits": 4, "block_name_to_quantize": null,
    "cache_block_outputs": true, "damp_percent": 0.01, "dataset": null, "desc_act": false,
    "exllama_config": {"version": 1}, "group_size": 128, "max_input_length": null,
    "model_seqlen": null, "module_name_preceding_first_block": null,
    "modules_in_block_to_quantize": null, "pad_token_id": null, "quant_method": "gptq",
    "sym": true, "tokenizer": null, "true_sequential": true, "use_cuda_fp16": false,
    "use_exllama": true})");
}
Json Compressed(const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

TEST(QuantizationConfig, IsAbsentWithoutASection) {
  for (const Json& config :
       {Json::object(), Json{{"quantization_config", nullptr}},
        Json{{"text_config", {{"quantization_config", nullptr}}}}, Json{{"text_config", "none"}}}) {
    const auto parsed = ParseQuantization(config, "f");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_FALSE(parsed->has_value());
  }
}

TEST(QuantizationConfig, ReadsGptq) {
  const QuantizationConfig config = Parsed(PublishedGptq());
  EXPECT_EQ(config.layout, Layout::kGptq);
  EXPECT_EQ(config.method, "gptq");
  EXPECT_EQ(config.where, "f: quantization_config");
  ASSERT_THAT(config.schemes, SizeIs(1));
  EXPECT_EQ(config.schemes[0].bits, 4);
  EXPECT_EQ(config.schemes[0].group_size, 128);
  EXPECT_TRUE(config.schemes[0].is_symmetric);
  EXPECT_TRUE(config.stores_zeros_less_one);
  EXPECT_FALSE(config.has_act_order || config.has_overrides);

  Json other = PublishedGptq();
  other.update({{"bits", 3},
                {"group_size", -1},
                {"desc_act", true},
                {"sym", false},
                {"checkpoint_format", "gptq_v2"},
                {"pack_dtype", "int32"},
                {"dynamic", {{"-:.*mlp.*", Json::object()}}},
                {"is_marlin_format", false}});
  const QuantizationConfig changed = Parsed(other);
  EXPECT_EQ(changed.schemes[0].bits, 3);
  EXPECT_EQ(changed.schemes[0].group_size, 0);
  EXPECT_FALSE(changed.schemes[0].is_symmetric || changed.stores_zeros_less_one);
  EXPECT_TRUE(changed.has_act_order && changed.has_overrides);
}

TEST(QuantizationConfig, ReadsAwq) {
  const QuantizationConfig config = Parsed({{"bits", 4},
                                            {"group_size", 64},
                                            {"modules_to_not_convert", nullptr},
                                            {"quant_method", "awq"},
                                            {"version", "GEMM"},
                                            {"zero_point", true}});
  EXPECT_EQ(config.layout, Layout::kAwq);
  EXPECT_EQ(config.schemes[0].group_size, 64);
  EXPECT_EQ(
      Parsed({{"w_bit", 4}, {"q_group_size", -1}, {"quant_method", "awq"}}).schemes[0].group_size,
      0);
}

TEST(QuantizationConfig, ReadsFp8) {
  const QuantizationConfig blocks = Parsed({{"activation_scheme", "dynamic"},
                                            {"fmt", "e4m3"},
                                            {"quant_method", "fp8"},
                                            {"weight_block_size", {128, 64}},
                                            {"modules_to_not_convert", {"lm_head"}}});
  EXPECT_EQ(blocks.layout, Layout::kFp8);
  EXPECT_TRUE(blocks.schemes[0].is_float);
  EXPECT_EQ(blocks.schemes[0].block_rows, 128);
  EXPECT_EQ(blocks.schemes[0].block_cols, 64);
  // 128 is the default of transformers; null means no blocks.
  EXPECT_EQ(Parsed({{"quant_method", "fp8"}}).schemes[0].block_cols, 128);
  EXPECT_EQ(Parsed({{"quant_method", "fp8"}, {"weight_block_size", nullptr}}).schemes[0].block_cols,
            0);
  EXPECT_EQ(Parsed({{"quant_method", "fbgemm_fp8"},
                    {"activation_scale_ub", 1200.0},
                    {"modules_to_not_convert", {"lm_head"}}})
                .method,
            "fbgemm_fp8");
  const QuantizationConfig modelopt = Parsed({{"quant_method", "modelopt"},
                                              {"quant_algo", "FP8"},
                                              {"ignore", {"lm_head"}},
                                              {"producer", {{"name", "modelopt"}}},
                                              {"kv_cache_scheme", {{"num_bits", 8}}}});
  EXPECT_EQ(modelopt.layout, Layout::kFp8);
}

TEST(QuantizationConfig, ReadsEveryGroupOfCompressedTensors) {
  Json section = Compressed({{"actorder", "weight"},
                             {"block_structure", nullptr},
                             {"dynamic", false},
                             {"group_size", 128},
                             {"num_bits", 4},
                             {"observer", "minmax"},
                             {"observer_kwargs", Json::object()},
                             {"strategy", "group"},
                             {"symmetric", true},
                             {"type", "int"}});
  section.update({{"global_compression_ratio", 1.45},
                  {"ignore", {"lm_head"}},
                  {"kv_cache_scheme", nullptr},
                  {"quantization_status", "compressed"},
                  {"sparsity_config", Json::object()},
                  {"transform_config", Json::object()},
                  {"version", "0.12.3"}});
  section["config_groups"]["group_0"].update(
      {{"input_activations", {{"num_bits", 8}}}, {"output_activations", nullptr}});
  section["config_groups"]["group_1"] = {{"targets", {"re:.*down_proj"}},
                                         {"weights",
                                          {{"num_bits", 8},
                                           {"type", "float"},
                                           {"strategy", "block"},
                                           {"block_structure", {128, 128}}}}};
  section["config_groups"]["group_2"] = {{"targets", {"Attention"}}, {"weights", nullptr}};
  section["config_groups"]["group_3"] = {{"weights", {{"num_bits", 8}, {"symmetric", false}}}};
  const QuantizationConfig config = Parsed(section);
  EXPECT_EQ(config.layout, Layout::kCompressedTensors);
  ASSERT_THAT(config.schemes, SizeIs(3));
  EXPECT_EQ(config.schemes[0].bits, 4);
  EXPECT_EQ(config.schemes[0].group_size, 128);
  EXPECT_TRUE(config.schemes[1].is_float);
  EXPECT_EQ(config.schemes[1].block_rows, 128);
  EXPECT_EQ(config.schemes[2].group_size, 0);
  EXPECT_FALSE(config.schemes[2].is_symmetric);
  // The section under its old name, and in the text part of a model.
  EXPECT_TRUE(ParseQuantization(AsRead({{"compression_config", section}}), "f")->has_value());
  const auto nested =
      ParseQuantization(AsRead({{"text_config", {{"quantization_config", section}}}}), "f");
  EXPECT_EQ((*nested)->where, "f: text_config.quantization_config");
}

TEST(QuantizationConfig, RefusesOtherMethodsByName) {
  for (const char* method : {"bitsandbytes", "hqq", "aqlm", "mxfp4", "quark", "torchao", "eetq"}) {
    EXPECT_EQ(ErrorOf({{"quant_method", method}}),
              absl::StrCat("f: quantization_config.quant_method: found \"", method,
                           "\", allowed: fp8, fbgemm_fp8, modelopt, gptq, awq, "
                           "compressed-tensors; or a model of floats, or a GGUF file"));
  }
  EXPECT_THAT(ErrorOf({{"load_in_4bit", true}}), HasSubstr("quant_method: found nothing"));
  EXPECT_THAT(ErrorOf({{"quant_method", 4}}), HasSubstr("quant_method: found 4"));
  EXPECT_EQ(ErrorOf("gptq"), "f: quantization_config: found \"gptq\", allowed: an object");
  EXPECT_THAT(ErrorOf({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}),
              EndsWith("quantization_config.quant_algo: found \"NVFP4\", allowed: FP8, "
                       "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO"));
}

TEST(QuantizationConfig, RefusesUnknownKeysAndValues) {
  const Json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}};
  const Json fp8 = {{"quant_method", "fp8"}};
  const Json packed = Compressed({{"num_bits", 4}, {"group_size", 32}});
  const auto with = [](Json section, const Json& changes) {
    section.merge_patch(changes);
    return section;
  };
  const auto weights = [&](const Json& changes) {
    Json section = packed;
    section["config_groups"]["group_0"]["weights"].update(changes);
    return section;
  };
  const std::pair<Json, const char*> cases[] = {
      {with(PublishedGptq(), {{"bits", 5}}), "bits: found 5, allowed: 2, 3, 4, 8"},
      {with(PublishedGptq(), {{"bits", 16}}), "bits: found 16, allowed: an integer from 2 to 8"},
      {with(PublishedGptq(), {{"bits", nullptr}}), "bits: found nothing"},
      {with(PublishedGptq(), {{"group_size", 0}}),
       "group_size: found 0, allowed: an integer from 1, or -1"},
      {with(PublishedGptq(), {{"group_size", nullptr}}), "group_size: found nothing"},
      {with(PublishedGptq(), {{"checkpoint_format", "marlin"}}),
       "checkpoint_format: found \"marlin\", allowed: gptq, gptq_v2"},
      {with(PublishedGptq(), {{"is_marlin_format", true}}), "is_marlin_format: found true"},
      {with(PublishedGptq(), {{"pack_dtype", "int64"}}), "pack_dtype: found \"int64\""},
      {with(PublishedGptq(), {{"sym", 1}}), "sym: found 1, allowed: true or false"},
      {with(PublishedGptq(), {{"dynamic", 1}}), "dynamic: found 1, allowed: an object"},
      {with(PublishedGptq(), {{"adapter", {{"rank", 8}}}}),
       "adapter: found {\"rank\":8}, allowed: nothing, null or false"},
      {with(awq, {{"version", "gemv"}}), "version: found \"gemv\", allowed: gemm"},
      {with(awq, {{"backend", "llm-awq"}}), "backend: found \"llm-awq\", allowed: autoawq"},
      {with(awq, {{"bits", 8}}), "bits: found 8"},
      {with(awq, {{"modules_to_not_convert", "lm_head"}}),
       "modules_to_not_convert: found \"lm_head\", allowed: a list of names, or null"},
      {with(awq, {{"modules_to_not_convert", {1}}}), "allowed: a list of names, or null"},
      {with(fp8, {{"fmt", "e5m2"}}), "fmt: found \"e5m2\", allowed: e4m3"},
      {with(fp8, {{"weight_block_size", {128}}}), "weight_block_size: found [128], allowed: two"},
      {with(fp8, {{"weight_block_size", {128, 0}}}), "allowed: two integers from 1"},
      {with(fp8, {{"weight_block_size", {128, "a"}}}), "allowed: two integers from 1"},
      {with(fp8, {{"rotation", "hadamard"}}), "rotation: found \"hadamard\", allowed: nothing"},
      {with(packed, {{"format", "nvfp4-pack-quantized"}}),
       "format: found \"nvfp4-pack-quantized\", allowed: pack-quantized, int-quantized, "},
      {with(packed, {{"format", nullptr}}), "format: found nothing"},
      {with(packed, {{"quantization_status", "calibration"}}),
       "quantization_status: found \"calibration\", allowed: compressed, frozen"},
      {with(packed, {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
       "sparsity_config: found {\"format\":\"sparse-24-bitmask\"}, allowed: nothing, or the "
       "format dense"},
      {with(packed, {{"transform_config", {{"config_groups", {{"u", 1}}}}}}),
       "transform_config: found "},
      {with(packed, {{"config_groups", nullptr}}), "config_groups: found nothing"},
      {with(packed, {{"config_groups", {{"group_0", {{"weights", nullptr}}}}}}),
       "allowed: a group with weights"},
      {with(packed, {{"config_groups", {{"group_0", 1}}}}),
       "config_groups.group_0: found 1, allowed: an object"},
      {with(packed, {{"config_groups", {{"group_0", {{"weights", 4}}}}}}),
       "config_groups.group_0.weights: found 4, allowed: an object"},
      {with(packed, {{"config_groups", {{"group_0", {{"new", 4}}}}}}),
       "config_groups.group_0.new: found 4"},
      {with(packed, {{"config_groups", {{"a\nb", 4}}}}), "config_groups.\"a\\nb\": found 4"},
      {weights({{"num_bits", 9}}), "weights.num_bits: found 9, allowed: an integer from 1 to 8"},
      {weights({{"num_bits", 4}, {"type", "float"}}),
       "num_bits: found 4, allowed: an integer from 8"},
      {weights({{"type", "uint"}}), "type: found \"uint\", allowed: int, float"},
      {weights({{"strategy", "tensor_group"}}), "strategy: found \"tensor_group\""},
      {weights({{"strategy", "block"}}), "strategy: found \"block\""},
      {weights({{"strategy", "group"}, {"group_size", nullptr}}), "group_size: found null"},
      {weights({{"dynamic", true}}), "dynamic: found true"},
      {weights({{"actorder", "sideways"}}), "actorder: found \"sideways\", allowed: group"},
      {weights({{"num_bits", 8}, {"type", "float"}, {"symmetric", false}}),
       "symmetric: found false"},
      {weights(
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"group_size", nullptr}}),
       "block_structure: found nothing"},
      {weights({{"global_scale", 1}}), "weights.global_scale: found 1"}};
  for (const auto& [section, says] : cases) {
    const std::string error = ErrorOf(section);
    EXPECT_THAT(error, HasSubstr(says));
    EXPECT_THAT(error, StartsWith("f: quantization_config."));
  }
}

TEST(QuantizationConfig, ReadsHfQuantConfig) {
  const auto parse = [](const std::string& text) { return ParseHfQuantConfig(text, "h"); };
  const auto good = parse(R"({"producer": {"name": "modelopt", "version": "0.13.0"},
      "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "group_size": null,
                       "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->method, "modelopt");
  EXPECT_EQ(good->where, "h: quantization");
  EXPECT_TRUE(good->schemes[0].is_float);
  for (const auto& [text, says] :
       {std::pair("{", "h"),
        {"[]", "h: found [], allowed: an object"},
        {"{}", "h: quantization: found nothing"},
        {R"({"quantization": {"quant_algo": "W4A8_AWQ"}})",
         "h: quantization.quant_algo: found \"W4A8_AWQ\", allowed: FP8"},
        {R"({"quantization": {"quant_algo": "FP8", "quantized_layers": {"a": 1}}})",
         "h: quantization.quantized_layers: found {\"a\":1}"},
        {R"({"quantization": {"quant_algo": "FP8"}, "more": 1})", "h: more: found 1"}}) {
    EXPECT_THAT(std::string(parse(text).status().message()), StartsWith(says));
  }
}

TEST(QuantizationConfig, ReadsTheFilesOfAFolder) {
  const TestFolder folder;
  std::vector<std::string> files;
  EXPECT_FALSE(ReadQuantization(folder.path(), &files)->has_value());
  EXPECT_THAT(files, ElementsAre());
  folder.Write("hf_quant_config.json", Json({{"quantization", {{"quant_algo", "FP8"}}}}).dump());
  EXPECT_EQ((*ReadQuantization(folder.path(), &files))->method, "modelopt");
  EXPECT_THAT(files, ElementsAre(EndsWith("/hf_quant_config.json")));
  folder.Write("config.json", Json({{"model_type", "llama"}}).dump());
  EXPECT_EQ((*ReadQuantization(folder.path(), &files))->method, "modelopt");
  files.clear();
  folder.Write("config.json", Json({{"quantization_config", PublishedGptq()}}).dump());
  EXPECT_EQ((*ReadQuantization(folder.path(), &files))->method, "gptq");
  EXPECT_THAT(files, ElementsAre(EndsWith("/config.json")));
  folder.Write("config.json", "{");
  EXPECT_THAT(std::string(ReadQuantization(folder.path(), &files).status().message()),
              StartsWith(folder.Path("config.json: ")));
}

// Published configurations, if they are next to this checkout: every key is known.
TEST(QuantizationConfig, ReadsPublishedConfigurations) {
  const std::string folder = SourcePath("../shared/golden/configs");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not next to this checkout";
  std::vector<std::string> methods;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Json config = Json::parse(*ReadFile(entry.path().string()));
    if (!config.contains("quantization_config")) continue;
    const auto parsed = ParseQuantization(config, "f");
    if (entry.path().filename() == "gpt-oss-20b.json") {
      EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("found \"mxfp4\""));
      continue;
    }
    ASSERT_TRUE(parsed.ok() && parsed->has_value()) << entry.path() << ": " << parsed.status();
    methods.push_back((*parsed)->method);
  }
  EXPECT_GE(methods.size(), 9u);
}

}  // namespace
}  // namespace tandem
