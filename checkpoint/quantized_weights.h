#ifndef TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_
#define TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/safetensors_weights.h"
#include "checkpoint/weights.h"

namespace tandem {

// The tensors of a quantised checkpoint as if it were one of plain matrices: "X.weight" in place of
// "X.qweight" and its like. A matrix is made when it is wanted, and takes memory until it is
// forgotten. Tensors that change nothing are left out: scales for activations and caches, and
// biases of zeros of quantised modules, where nobody asks for them by name.
//   files: what else the result depends on
// INVALID_ARGUMENT or NOT_FOUND naming the file, the tensor, what was found and what is allowed.
absl::StatusOr<std::unique_ptr<Weights>> OpenQuantizedWeights(
    std::unique_ptr<SafetensorsWeights> stored, const QuantizationConfig& config,
    QuantizedForm form, const std::vector<std::string>& files);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_QUANTIZED_WEIGHTS_H_
