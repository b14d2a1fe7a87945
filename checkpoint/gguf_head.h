// Draft heads in GGUF files: EAGLE-3 as llama.cpp's architecture eagle3 has it, and Tandem's own
// one-layer form (docs/draft_heads.md).
#ifndef TANDEM_CHECKPOINT_GGUF_HEAD_H_
#define TANDEM_CHECKPOINT_GGUF_HEAD_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_config.h"

namespace tandem {

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

#endif  // TANDEM_CHECKPOINT_GGUF_HEAD_H_
