#ifndef TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_
#define TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/formats/weights.h"

namespace tandem {

// The tensors of a GGUF model (GgufFile::Open's `path`) by the names that a Hugging Face checkpoint
// has for them, blocks as blocks. Query and key projections whose rows lie in another order there
// are copied when they are wanted, and until they are forgotten. rope_freqs.weight is of the
// configuration, and left out. A tensor of no model that is read is INVALID_ARGUMENT; errors name
// the file and its own name of the tensor.
absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_MODEL_FORMATS_GGUF_WEIGHTS_H_
