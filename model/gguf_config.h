#ifndef TANDEM_MODEL_GGUF_CONFIG_H_
#define TANDEM_MODEL_GGUF_CONFIG_H_

#include "absl/status/statusor.h"
#include "model/formats/gguf.h"
#include "model/model_config.h"

namespace tandem {

// The configuration of a GGUF model of architecture llama (Mistral's models too), qwen2 or qwen3,
// by its keys and by which tensors there are. Keys that llama.cpp, the reference of the format,
// reads for these architectures and that are not implemented here are errors unless they change
// nothing; what it does not read is not looked at. So there is no sliding window: it reads
// attention.sliding_window for none of them, though some converters write it, even for models that
// do not use theirs.
// NOT_FOUND or INVALID_ARGUMENT naming the file, the key or tensor, what was found and what is
// allowed.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

// Whether the rows of the query and key projections are stored so that neighbours are turned
// together, (0, 1), (2, 3), ..., where a Hugging Face checkpoint has halves, (0, d / 2), ...
bool HasNeighbourRows(const ModelConfig& gguf_config);

}  // namespace tandem

#endif  // TANDEM_MODEL_GGUF_CONFIG_H_
