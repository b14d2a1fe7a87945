#ifndef TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_
#define TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/formats/weights.h"
#include "model/model_config.h"

namespace tandem {

// The tensors of a GGUF model (GgufFile::Open's `path`) by the names that a Hugging Face checkpoint
// has for them, blocks as blocks. Query and key projections whose rows lie in another order there
// are copied when they are wanted, and until they are forgotten. rope_freqs.weight is of the
// configuration, and left out. A tensor of no model that is read is INVALID_ARGUMENT; errors name
// the file and its own name of the tensor.
absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path);

// A GGUF model's name of a tensor of a Hugging Face checkpoint. REQUIRES: it has one.
std::string GgufTensorName(absl::string_view name);
// Row `row` of a tensor of `num_rows` rows as a GGUF model of this configuration stores it: which
// row of the checkpoint it is.
int64_t CheckpointRow(absl::string_view name, const ModelConfig& config, int64_t num_rows,
                      int64_t row);

}  // namespace tandem

#endif  // TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_
