// What a GGUF file says of a model's configuration, the reverse of checkpoint/gguf_config.h.
#ifndef TANDEM_TOOLS_CHECKPOINTS_GGUF_CONFIG_KEYS_H_
#define TANDEM_TOOLS_CHECKPOINTS_GGUF_CONFIG_KEYS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"
#include "tools/checkpoints/gguf_output.h"

namespace tandem {

// Adds the architecture, the sizes and what there are keys for of the rest. REQUIRES: the family
// has an architecture.
void AddConfigKeys(const ModelConfig& config, const GgufForm& form, GgufHeader* header);

// Tensors that are of the configuration: what divides the angles of heads.
struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;  // [rotary_dim / 2]
};
std::vector<GgufRopeTensor> RopeTensorsOf(const ModelConfig& config);

// Whether a file that begins with these bytes, its rope tensors included, is read as this
// configuration, end tokens aside. INVALID_ARGUMENT that begins with `source` and names what has no
// place in a GGUF file.
absl::Status CheckIsReadAs(const ModelConfig& config, absl::string_view beginning,
                           const std::string& source);

// That error.
absl::Status HasNoPlaceInGguf(const std::string& source, const std::string& what);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_CONFIG_KEYS_H_
