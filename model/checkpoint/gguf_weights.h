#ifndef TANDEM_MODEL_CHECKPOINT_GGUF_WEIGHTS_H_
#define TANDEM_MODEL_CHECKPOINT_GGUF_WEIGHTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"

namespace tandem {

// Opens the tensors of a GGUF model (`path` as in GgufFile::Open) under the names that Transformer
// uses (model/checkpoint/model_tensors.h). Queries, keys and values in one tensor are
// "self_attn.qkv_proj", gate and up in one tensor "mlp.gate_up_proj". Each expert's tensor is
// listed by itself, whether the file stacks the experts or not. Block formats stay blocks, and rows
// stay in the file's order. Tensors that belong to the configuration
// (model/checkpoint/gguf_config.h) are left out. INVALID_ARGUMENT for a tensor that the
// architecture does not have; errors name the file and the file's own name of the tensor.
absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path);
absl::StatusOr<std::unique_ptr<Weights>> WeightsOf(std::unique_ptr<GgufFile> file);

// Returns the name in a GGUF model of the tensor `name`, or of a stack of all experts,
// "model.layers.0.mlp.experts.gate_proj.weight". REQUIRES: GGUF has a name for it.
std::string GgufTensorName(absl::string_view name, const ModelFamily& family);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_GGUF_WEIGHTS_H_
