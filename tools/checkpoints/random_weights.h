#ifndef TANDEM_TOOLS_CHECKPOINTS_RANDOM_WEIGHTS_H_
#define TANDEM_TOOLS_CHECKPOINTS_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "checkpoint/weights.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {

// The weights of a model of this shape without files, for Transformer::Load. All layers have the
// numbers of one, and so have all experts, which takes the memory and the time of one. Where
// `quantized` says so, matrices are blocks of that format, embedding and head of Q8_0, as
// Transformer::LoadOptions::quantized makes them.
std::shared_ptr<const Weights> MakeRandomWeights(const RandomModelShape& shape, uint64_t seed,
                                                 std::optional<DType> quantized = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_RANDOM_WEIGHTS_H_
