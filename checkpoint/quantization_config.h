// How the weights of a Hugging Face checkpoint are quantised, as its configuration says: the
// section "quantization_config" of config.json, or hf_quant_config.json beside it.
#ifndef TANDEM_CHECKPOINT_QUANTIZATION_CONFIG_H_
#define TANDEM_CHECKPOINT_QUANTIZATION_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tandem {

// What a quantised matrix consists of.
struct WeightScheme {
  bool is_float = false;     // F8_E4M3; else integers
  int bits = 8;              // of a number
  bool is_symmetric = true;  // without zero points, or with the middle of the range for all
  int group_size = 0;        // inputs that have a scale in common; 0: all of a row
  // Outputs and inputs that have a scale in common, where they are blocks; else 0.
  int block_rows = 0;
  int block_cols = 0;
};

struct QuantizationConfig {
  // Whose names and packing the tensors have.
  enum class Layout { kFp8, kGptq, kAwq, kCompressedTensors };
  Layout layout = Layout::kFp8;
  std::string method{};  // as the configuration calls it: "fp8", "modelopt", "gptq"
  std::string where{};   // of errors about it: its file and section
  // Of compressed-tensors one for each group of modules; else one.
  std::vector<WeightScheme> schemes{};
  // Of kGptq. Act order: inputs of a group are not neighbours, so that g_idx has to say which
  // they are.
  bool has_act_order = false;
  bool stores_zeros_less_one = true;  // version 1 of the format
  bool has_overrides = false;         // some modules have other bits or groups; their shapes tell
};

// The section of a configuration, `config` an object that `file` holds; nothing if there is none.
// Every key of it is known, or empty. INVALID_ARGUMENT naming the file, the key, what was found and
// what is allowed.
absl::StatusOr<std::optional<QuantizationConfig>> ParseQuantization(const nlohmann::json& config,
                                                                    const std::string& file);
// The same of the text of a hf_quant_config.json, as modelopt writes it.
absl::StatusOr<QuantizationConfig> ParseHfQuantConfig(absl::string_view text,
                                                      const std::string& file);

// Of a model's folder; nothing if it is of floats, or has no configuration. config.json counts
// where both files say something. `*files` are those that were read and had a say.
absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantization(const std::string& folder,
                                                                   std::vector<std::string>* files);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_QUANTIZATION_CONFIG_H_
