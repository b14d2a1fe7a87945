// How the weights of a Hugging Face checkpoint are quantised, as its configuration says: the
// section "quantization_config" of config.json, or hf_quant_config.json next to it.
#ifndef TANDEM_MODEL_CHECKPOINT_QUANTIZATION_CONFIG_H_
#define TANDEM_MODEL_CHECKPOINT_QUANTIZATION_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"

namespace tandem {

// The form of a quantised matrix.
struct WeightScheme {
  bool is_float = false;     // F8_E4M3; else integers
  int bits = 8;              // per number
  bool is_symmetric = true;  // without zero points, or with the middle of the range for all
  int group_size = 0;        // inputs that share a scale; 0: the whole row
  // Outputs and inputs of a block, which share a scale; 0 without blocks.
  int block_rows = 0;
  int block_cols = 0;
};

struct QuantizationConfig {
  // The method whose names and packing the tensors have.
  enum class Layout { kFp8, kGptq, kAwq, kCompressedTensors };
  Layout layout = Layout::kFp8;
  std::string method{};  // as the configuration calls it: "fp8", "modelopt", "gptq"
  std::string where{};   // its file and section, for errors
  // One for each group of modules of compressed-tensors; otherwise one.
  std::vector<WeightScheme> schemes{};
  // For kGptq. Act order: the inputs of a group are not neighbours, so g_idx must state the group
  // of each input.
  bool has_act_order = false;
  bool stores_zeros_less_one = true;  // version 1 of the format
  bool has_overrides = false;  // some modules have other bits or groups, seen in their shapes
};

// Reads the section of `config`, the object in `file`; nullopt if there is none. Every key must be
// known or empty. INVALID_ARGUMENT, naming the file, the key, the value found and the values
// allowed.
absl::StatusOr<std::optional<QuantizationConfig>> ParseQuantization(const SortedJson& config,
                                                                    const std::string& file);
// The same from the text of a hf_quant_config.json, as modelopt writes it.
absl::StatusOr<QuantizationConfig> ParseHfQuantConfig(absl::string_view text,
                                                      const std::string& file);

// The same for a model's folder; nullopt if its weights are floats, or if it has no configuration.
// config.json takes precedence. Appends to `*files` the file that has the section.
absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantization(const std::string& folder,
                                                                   std::vector<std::string>* files);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_QUANTIZATION_CONFIG_H_
