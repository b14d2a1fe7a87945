#include "model/checkpoint/quantization_config.h"

#include <algorithm>
#include <climits>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/json/config_fields.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

using Json = SortedJson;

using Layout = QuantizationConfig::Layout;

constexpr char kQuantizationSection[] = "quantization_config";
constexpr char kOldQuantizationSection[] =
    "compression_config";  // the older name in compressed-tensors
// Keys that do not change the stored weights. The tensors themselves show which modules are
// quantised. Activations and the cache are not quantised as the checkpoint was calibrated for. The
// other keys say how the weights were made, or choose other programs' kernels.
constexpr absl::string_view kHarmlessOfFp8 =
    "activation_scheme activation_scale_ub dequantize ignored_layers kv_cache_scheme "
    "modules_to_not_convert";
constexpr absl::string_view kHarmlessOfModelopt =
    "config_groups exclude_modules ignore kv_cache_quant_algo kv_cache_quantized_layers "
    "kv_cache_scheme producer";
constexpr absl::string_view kHarmlessOfGptq =
    "act_group_aware backend batch_size block_name_to_quantize cache_block_outputs "
    "damp_auto_increment damp_percent dataset disable_exllama exllama_config lm_head "
    "max_input_length meta model_file_base_name model_name_or_path model_seqlen "
    "module_name_preceding_first_block modules_in_block_to_quantize modules_to_not_convert "
    "pad_token_id quantizer static_groups tokenizer true_sequential use_cuda_fp16 use_exllama";
constexpr absl::string_view kHarmlessOfAwq =
    "do_fuse exllama_config fuse_max_seq_len lm_head meta modules_to_fuse modules_to_not_convert";
constexpr absl::string_view kHarmlessOfCompressed =
    "global_compression_ratio ignore kv_cache_scheme run_compressed version";
constexpr absl::string_view kHarmlessOfGroup = "input_activations output_activations targets";
constexpr absl::string_view kHarmlessOfWeights =
    "block_structure observer observer_kwargs scale_dtype zp_dtype";
// Keys whose values must be lists of names.
constexpr absl::string_view kNameLists =
    "exclude_modules ignore ignored_layers modules_to_not_convert targets";

// Checks that every key has been read, is harmless or is empty, and that lists of names are lists
// of strings.
absl::Status CheckSectionKeys(const ConfigFields& fields, absl::string_view harmless) {
  for (const auto& member : fields.object().items()) {
    const std::string& key = member.key();
    const Json& value = member.value();
    const bool is_known = fields.WasRead(key) || HasWord(harmless, key);
    if (!is_known && !SaysNothing(value)) {
      return fields.Wrong(key,
                          "nothing, null or false (not known, and it might change the result)");
    }
    if (!HasWord(kNameLists, key) || value.is_null()) continue;
    const bool are_names = value.is_array() &&
                           absl::c_all_of(value, [](const Json& name) { return name.is_string(); });
    if (!are_names) return fields.Wrong(key, "a list of names, or null");
  }
  return absl::OkStatus();
}

// Returns the lower-case text of a key, one of `allowed` ("gptq, gptq_v2"); `if_absent` if the key
// is absent. Errors show `shown` in place of `allowed` unless it is empty.
absl::StatusOr<std::string> TextOf(const ConfigFields& fields, absl::string_view key,
                                   absl::string_view if_absent, absl::string_view allowed,
                                   absl::string_view shown = "") {
  const Json* const value = fields.Find(key);
  if (value == nullptr && !if_absent.empty()) return std::string(if_absent);
  if (value != nullptr && value->is_string()) {
    std::string text = absl::AsciiStrToLower(*value->get_ptr<const std::string*>());
    const std::vector<std::string> texts = absl::StrSplit(absl::AsciiStrToLower(allowed), ", ");
    if (absl::c_linear_search(texts, text)) return text;
  }
  return fields.Wrong(key, shown.empty() ? allowed : shown);
}

// Returns the name of a key that is present, of two.
absl::string_view KeyOf(const ConfigFields& fields, absl::string_view key,
                        absl::string_view other) {
  const bool has_other = fields.Find(other) != nullptr;
  return fields.Find(key) == nullptr && has_other ? other : key;
}

// Returns the inputs of a group. -1 means the whole row, which is 0 here.
absl::StatusOr<int> ReadGroupSize(const ConfigFields& fields, absl::string_view key,
                                  std::optional<int> if_absent) {
  const Json* const value = fields.Find(key);
  if (value != nullptr && *value == -1) return 0;
  if (value == nullptr && if_absent.has_value()) return *if_absent;
  absl::StatusOr<int> size = fields.Int(key, 1, INT_MAX);
  if (size.ok()) return size;
  return fields.Wrong(key, "an integer from 1, or -1");
}

// Reads [rows, cols] of the blocks that share a scale.
absl::Status ReadBlock(const ConfigFields& fields, absl::string_view key, WeightScheme* scheme) {
  const Json& value = *fields.Find(key);
  const auto size_at = [&](size_t i) -> int64_t {
    if (!value[i].is_number_unsigned()) return 0;
    return static_cast<int64_t>(std::min<uint64_t>(value[i].get<uint64_t>(), INT_MAX));
  };
  if (!value.is_array() || value.size() != 2 || size_at(0) < 1 || size_at(1) < 1) {
    return fields.Wrong(key, "two integers from 1");
  }
  scheme->block_rows = static_cast<int>(size_at(0));
  scheme->block_cols = static_cast<int>(size_at(1));
  return absl::OkStatus();
}

// ---- FP8 ----
constexpr int kUsualBlock = 128;  // the default of fp8

absl::StatusOr<QuantizationConfig> ReadFp8(const ConfigFields& fields) {
  RETURN_IF_ERROR(TextOf(fields, "fmt", "e4m3", "e4m3, float8_e4m3fn", "e4m3").status());
  // Scales that are powers of two are read like other floats.
  RETURN_IF_ERROR(TextOf(fields, "scale_fmt", "float", "float, ue8m0").status());
  WeightScheme scheme{.is_float = true};
  if (fields.Find("weight_block_size") != nullptr) {
    RETURN_IF_ERROR(ReadBlock(fields, "weight_block_size", &scheme));
  } else if (!fields.Has("weight_block_size")) {
    scheme.block_rows = scheme.block_cols = kUsualBlock;
  }
  return QuantizationConfig{.layout = Layout::kFp8, .schemes = {scheme}};
}

absl::StatusOr<QuantizationConfig> ReadModelopt(const ConfigFields& fields) {
  ASSIGN_OR_RETURN(const std::string algorithm,
                   TextOf(fields, "quant_algo", "", "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO"));
  WeightScheme scheme{.is_float = true};
  if (algorithm == "fp8_pb_wo") scheme.block_rows = scheme.block_cols = kUsualBlock;
  return QuantizationConfig{.layout = Layout::kFp8, .schemes = {scheme}};
}

// ---- GPTQ and AWQ ----
absl::StatusOr<QuantizationConfig> ReadGptq(const ConfigFields& fields) {
  QuantizationConfig config{.layout = Layout::kGptq};
  WeightScheme scheme;
  ASSIGN_OR_RETURN(scheme.bits, fields.Int("bits", 2, 8));
  if (scheme.bits > 4 && scheme.bits != 8) return fields.Wrong("bits", "2, 3, 4, 8");
  ASSIGN_OR_RETURN(scheme.group_size, ReadGroupSize(fields, "group_size", std::nullopt));
  ASSIGN_OR_RETURN(scheme.is_symmetric, fields.Bool("sym", true));
  ASSIGN_OR_RETURN(config.has_act_order, fields.Bool("desc_act", false));
  for (const char* key : {"checkpoint_format", "format"}) {
    ASSIGN_OR_RETURN(const std::string format, TextOf(fields, key, "gptq", "gptq, gptq_v2"));
    if (fields.Find(key) != nullptr) config.stores_zeros_less_one = format == "gptq";
  }
  RETURN_IF_ERROR(fields.Only("pack_dtype", "int32"));
  if (const Json* const overrides = fields.Find("dynamic"); overrides != nullptr) {
    if (!overrides->is_object()) return fields.Wrong("dynamic", "an object");
    config.has_overrides = !overrides->empty();
  }
  config.schemes = {scheme};
  return config;
}

absl::StatusOr<QuantizationConfig> ReadAwq(const ConfigFields& fields) {
  WeightScheme scheme;
  const absl::string_view bits_key = KeyOf(fields, "bits", "w_bit");
  ASSIGN_OR_RETURN(scheme.bits, fields.Int(bits_key, 4, 4, 4));
  ASSIGN_OR_RETURN(scheme.group_size,
                   ReadGroupSize(fields, KeyOf(fields, "group_size", "q_group_size"), 128));
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    RETURN_IF_ERROR(TextOf(fields, key, "gemm", "gemm").status());
  }
  RETURN_IF_ERROR(TextOf(fields, "backend", "autoawq", "autoawq, auto", "autoawq").status());
  RETURN_IF_ERROR(fields.Only("pack_dtype", "int32"));
  RETURN_IF_ERROR(fields.Only("desc_act", false));
  // The zeros are stored in either case.
  RETURN_IF_ERROR(fields.Bool("zero_point", true).status());
  RETURN_IF_ERROR(fields.Bool("sym", false).status());
  scheme.is_symmetric = false;
  return QuantizationConfig{.layout = Layout::kAwq, .schemes = {scheme}};
}

// ---- compressed-tensors ----
constexpr absl::string_view kCompressedFormats =
    "pack-quantized, int-quantized, float-quantized, naive-quantized, mixed-precision";

absl::StatusOr<WeightScheme> ReadWeights(const ConfigFields& fields) {
  WeightScheme scheme;
  ASSIGN_OR_RETURN(const std::string type, TextOf(fields, "type", "int", "int, float"));
  scheme.is_float = type == "float";
  ASSIGN_OR_RETURN(scheme.bits, fields.Int("num_bits", scheme.is_float ? 8 : 1, 8, 8));
  ASSIGN_OR_RETURN(scheme.is_symmetric, fields.Bool("symmetric", true));
  if (scheme.is_float && !scheme.is_symmetric)
    return fields.Wrong("symmetric", "true with type float");
  RETURN_IF_ERROR(fields.Only("dynamic", false));
  // With "group", the order of groups is in g_idx; the other values change nothing.
  if (const Json* const order = fields.Find("actorder"); order != nullptr && !order->is_boolean()) {
    RETURN_IF_ERROR(TextOf(fields, "actorder", "", "group, weight, dynamic, static",
                           "group, weight, dynamic, static, true, false")
                        .status());
  }
  ASSIGN_OR_RETURN(const int group_size, ReadGroupSize(fields, "group_size", 0));
  ASSIGN_OR_RETURN(const std::string strategy,
                   TextOf(fields, "strategy", group_size > 0 ? "group" : "tensor",
                          "tensor, channel, group, block"));
  RETURN_IF_ERROR(CheckSectionKeys(fields, kHarmlessOfWeights));
  if (strategy == "group") {
    if (group_size == 0) return fields.Wrong("group_size", "an integer from 1 with strategy group");
    scheme.group_size = group_size;
    if (!scheme.is_float) return scheme;
    scheme.block_rows = 1;
    scheme.block_cols = group_size;
  } else if (strategy == "block") {
    if (!scheme.is_float) return fields.Wrong("strategy", "tensor, channel, group with type int");
    if (fields.Find("block_structure") == nullptr) {
      return fields.Wrong("block_structure", "two integers from 1 with strategy block");
    }
    RETURN_IF_ERROR(ReadBlock(fields, "block_structure", &scheme));
  }
  return scheme;
}

absl::StatusOr<QuantizationConfig> ReadCompressed(const ConfigFields& fields) {
  RETURN_IF_ERROR(TextOf(fields, "format", "", kCompressedFormats).status());
  RETURN_IF_ERROR(
      TextOf(fields, "quantization_status", "compressed", "compressed, frozen").status());
  if (const Json* const sparsity = fields.Find("sparsity_config"); sparsity != nullptr) {
    const bool is_dense =
        SaysNothing(*sparsity) || (sparsity->is_object() && sparsity->contains("format") &&
                                   IsText((*sparsity)["format"], "dense"));
    if (!is_dense) return fields.Wrong("sparsity_config", "nothing, or the format dense");
  }
  if (const Json* const transform = fields.Find("transform_config");
      transform != nullptr && !SaysNothing(*transform)) {
    return fields.Wrong("transform_config", "nothing (rotations are not implemented)");
  }
  ASSIGN_OR_RETURN(const ConfigFields groups, fields.Object("config_groups"));
  QuantizationConfig config{.layout = Layout::kCompressedTensors};
  for (const auto& member : groups.object().items()) {
    ASSIGN_OR_RETURN(const ConfigFields of_group, groups.Object(member.key()));
    RETURN_IF_ERROR(TextOf(of_group, "format", "pack-quantized", kCompressedFormats).status());
    const bool has_weights = of_group.Find("weights") != nullptr;
    RETURN_IF_ERROR(CheckSectionKeys(of_group, kHarmlessOfGroup));
    if (!has_weights) continue;  // quantises only activations or the cache
    ASSIGN_OR_RETURN(const ConfigFields of_weights, of_group.Object("weights"));
    ASSIGN_OR_RETURN(const WeightScheme scheme, ReadWeights(of_weights));
    config.schemes.push_back(scheme);
  }
  if (config.schemes.empty()) return fields.Wrong("config_groups", "a group with weights");
  return config;
}

// A quantisation method by its name in a configuration, with the keys that change nothing.
struct Method {
  const char* name;
  absl::string_view harmless;
  absl::StatusOr<QuantizationConfig> (*read)(const ConfigFields& fields);
};
constexpr Method kMethods[] = {{"fp8", kHarmlessOfFp8, ReadFp8},
                               {"fbgemm_fp8", kHarmlessOfFp8, ReadFp8},
                               {"modelopt", kHarmlessOfModelopt, ReadModelopt},
                               {"gptq", kHarmlessOfGptq, ReadGptq},
                               {"awq", kHarmlessOfAwq, ReadAwq},
                               {"compressed-tensors", kHarmlessOfCompressed, ReadCompressed}};

absl::StatusOr<QuantizationConfig> ReadWith(const Method& method, const ConfigFields& fields) {
  ASSIGN_OR_RETURN(QuantizationConfig config, method.read(fields));
  RETURN_IF_ERROR(CheckSectionKeys(fields, method.harmless));
  config.method = method.name;
  config.where = absl::StrCat(fields.file(), ": ", absl::StripSuffix(fields.prefix(), "."));
  return config;
}

absl::StatusOr<QuantizationConfig> ReadSection(const ConfigFields& outer, const char* name) {
  ASSIGN_OR_RETURN(const ConfigFields fields, outer.Object(name));
  const absl::string_view key = KeyOf(fields, "quant_method", "method");
  for (const Method& method : kMethods) {
    const Json* const found = fields.Find(key);
    if (found != nullptr && IsText(*found, method.name)) return ReadWith(method, fields);
  }
  return fields.Wrong(key, absl::StrCat(absl::StrJoin(kMethods, ", ",
                                                      [](std::string* out, const Method& method) {
                                                        absl::StrAppend(out, method.name);
                                                      }),
                                        "; or a model of floats, or a GGUF file"));
}

}  // namespace

absl::StatusOr<std::optional<QuantizationConfig>> ParseQuantization(const Json& config,
                                                                    const std::string& file) {
  const ConfigFields fields(config, file);
  for (const char* name : {kQuantizationSection, kOldQuantizationSection}) {
    if (fields.Find(name) != nullptr) return ReadSection(fields, name);
  }
  // In a model of several parts, the text part may have a section of its own.
  const Json* const text = fields.Find("text_config");
  if (text == nullptr || !text->is_object()) return std::nullopt;
  ASSIGN_OR_RETURN(const ConfigFields of_text, fields.Object("text_config"));
  if (of_text.Find(kQuantizationSection) == nullptr) return std::nullopt;
  return ReadSection(of_text, kQuantizationSection);
}

absl::StatusOr<QuantizationConfig> ParseHfQuantConfig(absl::string_view text,
                                                      const std::string& file) {
  ASSIGN_OR_RETURN(const SortedJson document, ParseJsonObject(text, file));
  const ConfigFields fields(document, file);
  RETURN_IF_ERROR(CheckSectionKeys(fields, "producer quantization"));
  ASSIGN_OR_RETURN(const ConfigFields section, fields.Object("quantization"));
  return ReadWith({"modelopt", kHarmlessOfModelopt, ReadModelopt}, section);
}

absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantization(
    const std::string& folder, std::vector<std::string>* files) {
  const std::string file = absl::StrCat(folder, "/config.json");
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (text.ok()) {
    ASSIGN_OR_RETURN(const SortedJson document, ParseJsonObject(*text, file));
    ASSIGN_OR_RETURN(std::optional<QuantizationConfig> config, ParseQuantization(document, file));
    if (config.has_value()) {
      files->push_back(file);
      return config;
    }
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  }
  const std::string beside = absl::StrCat(folder, "/hf_quant_config.json");
  const absl::StatusOr<std::string> beside_text = ReadFile(beside);
  if (absl::IsNotFound(beside_text.status())) return std::nullopt;
  RETURN_IF_ERROR(beside_text.status());
  files->push_back(beside);
  return ParseHfQuantConfig(*beside_text, beside);
}

}  // namespace tandem
