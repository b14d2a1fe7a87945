#ifndef TANDEM_MODEL_CHECKPOINT_ROPE_CONFIG_H_
#define TANDEM_MODEL_CHECKPOINT_ROPE_CONFIG_H_

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
  bool rounds_range = true;       // kYarn: rounds the range of pairs between the betas
  int original_context = 0;       // not kDefault, kLinear: original_max_position_embeddings
  double magnitude = 1.0;         // kYarn, kLongRope: factor of cosines and sines
  // kLongRope: divisors of the frequencies for texts that fit in original_context, and for longer
  // texts. [rotary_dim / 2] each.
  std::vector<float> short_divisors{};
  std::vector<float> long_divisors{};
  // Further divisors of the angles, which GGUF files have in place of kLlama3: [rotary_dim / 2], or
  // none.
  std::vector<float> divisors{};

  bool operator==(const RopeConfig&) const = default;

  // Returns the angle per position of each pair of elements: [rotary_dim / 2]. `is_long`, which
  // only kLongRope uses: the text reaches beyond original_context.
  std::vector<float> InverseFrequencies(int rotary_dim, bool is_long = false) const;
};

// Fills in the ropes, rotary_dim and rotations from the keys of config.json, in all their forms.
// Yarn also lengthens the context. REQUIRES: num_layers, head_dim, context_length and windows have
// been read.
absl::Status ReadRope(const ConfigFields& config, const ModelFamily& family, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_ROPE_CONFIG_H_
