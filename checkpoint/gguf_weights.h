#ifndef TANDEM_CHECKPOINT_GGUF_WEIGHTS_H_
#define TANDEM_CHECKPOINT_GGUF_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_families.h"
#include "checkpoint/weights.h"

namespace tandem {

// The tensors of a GGUF model (GgufFile::Open's `path`) by the names that Transformer has for them
// (checkpoint/model_tensors.h), queries, keys and values or gate and up that are one tensor by
// "self_attn.qkv_proj" and "mlp.gate_up_proj"; those of experts each for itself, in one piece or
// not in the file; blocks as blocks, rows in the file's order. Those of the configuration are left
// out (checkpoint/gguf_config.h). A tensor of no model that is read is INVALID_ARGUMENT; errors
// name the file and its own name of the tensor.
absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path);
absl::StatusOr<std::unique_ptr<Weights>> WeightsOf(std::unique_ptr<GgufFile> file);

// A GGUF model's name of a tensor that has this name here, or of those of all experts in one piece,
// "model.layers.0.mlp.experts.gate_proj.weight". REQUIRES: it has one.
std::string GgufTensorName(absl::string_view name, const ModelFamily& family);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_GGUF_WEIGHTS_H_
