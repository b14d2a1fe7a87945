#ifndef TANDEM_MODEL_CHECKPOINT_GGUF_CONFIG_H_
#define TANDEM_MODEL_CHECKPOINT_GGUF_CONFIG_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_keys.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"

namespace tandem {

// Tensors that are a part of the configuration, not weights.
inline constexpr char kGgufDivisors[] = "rope_freqs.weight";
inline constexpr char kGgufLongDivisors[] = "rope_factors_long.weight";
inline constexpr char kGgufShortDivisors[] = "rope_factors_short.weight";

// Reads the configuration of a GGUF model whose architecture a family has (GgufForm), from its keys
// and from which tensors are present. A key that llama.cpp, the reference of the format, reads and
// this function does not implement is an error unless its value changes nothing; keys that
// llama.cpp does not read are ignored. Therefore only the architectures whose layers differ have a
// sliding window, and phi3, for which llama.cpp leaves the window out: some converters write
// attention.sliding_window even for models that do not use theirs.
// Returns NOT_FOUND or INVALID_ARGUMENT, naming the file, the key or tensor, the value found and
// the values allowed.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

// Returns the family of the file's general.architecture. An architecture that has families with and
// without experts is resolved by the file's number of experts. Errors as above.
absl::StatusOr<const ModelFamily*> GgufFamilyOf(const GgufFile& file);

// Returns how many experts a layer has; 0 for a family without experts. Errors as above.
absl::StatusOr<int> GgufExpertCount(const GgufFile& file, const ModelFamily& family);

// ---- Draft heads: EAGLE-3 as llama.cpp's architecture eagle3 has it, and Tandem's own one-layer
// form (docs/drafting/draft_heads.md) ----

// Keys of a draft head, without the architecture's prefix.
inline constexpr char kGgufHeadLayers[] = "extract_layers";
inline constexpr char kGgufHeadTargetSize[] = "target_hidden_size";
inline constexpr char kGgufHeadNormsResidual[] = "norm_before_residual";

// Returns how many tokens the target of a head has. The head need not have an embedding of its own.
// INVALID_ARGUMENT if the file does not say.
absl::StatusOr<int> GgufTargetVocabulary(const GgufKeys& keys);

// Completes a one-layer `model`, whose sizes and rope have been read, with the fields of a draft
// head. Errors name the key or the tensor.
absl::Status ReadGgufHead(const GgufKeys& keys, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_GGUF_CONFIG_H_
