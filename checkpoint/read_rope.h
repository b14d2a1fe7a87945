// The keys of config.json that say how positions turn queries and keys, in all their forms.
#ifndef TANDEM_CHECKPOINT_READ_ROPE_H_
#define TANDEM_CHECKPOINT_READ_ROPE_H_

#include "absl/status/status.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"
#include "json/config_fields.h"

namespace tandem {

// Fills in the ropes, rotary_dim and rotations, and lengthens the context where yarn does.
// REQUIRES: num_layers, head_dim, context_length and windows are read.
absl::Status ReadRope(const ConfigFields& config, const ModelFamily& family, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_READ_ROPE_H_
