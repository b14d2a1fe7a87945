#ifndef TANDEM_CHECKPOINT_ROPE_CONFIG_H_
#define TANDEM_CHECKPOINT_ROPE_CONFIG_H_

#include <vector>

#include "absl/status/status.h"

namespace tandem {

class ConfigFields;
struct ModelConfig;
struct ModelFamily;

// How positions rotate queries and keys. Formulas: Hugging Face transformers, modeling_rope_utils.
struct RopeConfig {
  enum class Type { kDefault, kLinear, kLlama3, kYarn, kLongRope };
  Type type = Type::kDefault;
  double theta = 10000.0;
  double factor = 1.0;            // kLinear, kLlama3, kYarn
  double low_freq_factor = 1.0;   // kLlama3
  double high_freq_factor = 4.0;  // kLlama3
  double beta_fast = 32.0;        // kYarn
  double beta_slow = 1.0;         // kYarn
  bool rounds_range = true;       // kYarn: the dimensions between the betas, to whole ones
  int original_context = 0;       // all but kDefault and kLinear: original_max_position_embeddings
  double magnitude = 1.0;         // kYarn, kLongRope: of cosines and sines
  // kLongRope: what divides the frequencies of texts that reach no farther than original_context,
  // and of longer ones. [rotary_dim / 2] each.
  std::vector<float> short_divisors{};
  std::vector<float> long_divisors{};
  // Numbers that divide the angles of all that, as GGUF files have them in place of kLlama3:
  // [rotary_dim / 2], or none.
  std::vector<float> divisors{};

  bool operator==(const RopeConfig&) const = default;

  // The angle per position of each pair of elements: [rotary_dim / 2]. `is_long`: of a text that
  // reaches beyond original_context, which only kLongRope asks.
  std::vector<float> InverseFrequencies(int rotary_dim, bool is_long = false) const;
};

// Fills in the ropes, rotary_dim and rotations by the keys of config.json, in all their forms, and
// lengthens the context where yarn does.
// REQUIRES: num_layers, head_dim, context_length and windows are read.
absl::Status ReadRope(const ConfigFields& config, const ModelFamily& family, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_ROPE_CONFIG_H_
