// The keys of config.json that say how positions turn queries and keys, in all their forms.
#ifndef TANDEM_MODEL_READ_ROPE_H_
#define TANDEM_MODEL_READ_ROPE_H_

#include "absl/status/status.h"
#include "model/formats/config_fields.h"
#include "model/model_config.h"
#include "model/model_families.h"

namespace tandem {

// Fills in the ropes, rotary_dim and rotations, and lengthens the context where yarn does.
// REQUIRES: num_layers, head_dim, context_length and windows are read.
absl::Status ReadRope(const ConfigFields& config, const ModelFamily& family, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_MODEL_READ_ROPE_H_
