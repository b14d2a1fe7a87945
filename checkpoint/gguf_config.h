#ifndef TANDEM_CHECKPOINT_GGUF_CONFIG_H_
#define TANDEM_CHECKPOINT_GGUF_CONFIG_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"

namespace tandem {

// Of the tensors these are of the configuration.
inline constexpr char kGgufDivisors[] = "rope_freqs.weight";
inline constexpr char kGgufLongDivisors[] = "rope_factors_long.weight";
inline constexpr char kGgufShortDivisors[] = "rope_factors_short.weight";

// The configuration of a GGUF model of an architecture that a family has (GgufForm), by its keys
// and by which tensors there are. Keys that llama.cpp, the reference of the format, reads for it
// and that are not implemented here are errors unless they change nothing; what it does not read is
// not looked at. So only the architectures whose layers differ have a sliding window, and phi3,
// whose llama.cpp leaves it out: elsewhere some converters write attention.sliding_window even for
// models that do not use theirs.
// NOT_FOUND or INVALID_ARGUMENT naming the file, the key or tensor, what was found and what is
// allowed.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

// The family of the file's general.architecture and, where one has families with and without
// experts, of its number of experts. Likewise.
absl::StatusOr<const ModelFamily*> GgufFamilyOf(const GgufFile& file);

// How many experts a layer has; 0 of a family without. Likewise.
absl::StatusOr<int> GgufExpertCount(const GgufFile& file, const ModelFamily& family);

// ---- Draft heads: EAGLE-3 as llama.cpp's architecture eagle3 has it, and Tandem's own one-layer
// form (docs/draft_heads.md) ----

// Keys of a head, without the architecture.
inline constexpr char kGgufHeadLayers[] = "extract_layers";
inline constexpr char kGgufHeadTargetSize[] = "target_hidden_size";
inline constexpr char kGgufHeadNormsResidual[] = "norm_before_residual";

// How many tokens the target of a head has, which need not have an embedding of its own.
// INVALID_ARGUMENT if the file does not say.
absl::StatusOr<int> GgufTargetVocabulary(const GgufKeys& keys);

// Reads what makes a head of a one-layer model whose sizes and rope `model` has already. Errors
// name the key or the tensor.
absl::Status ReadGgufHead(const GgufKeys& keys, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_GGUF_CONFIG_H_
