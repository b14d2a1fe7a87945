#ifndef TANDEM_CHECKPOINT_GGUF_ROPE_H_
#define TANDEM_CHECKPOINT_GGUF_ROPE_H_

#include "absl/status/status.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_config.h"

namespace tandem {

// Fills in the rotary embeddings and rotary_dim by the keys and tensors of a GGUF file, as
// llama.cpp reads them, and lengthens the context where yarn does. REQUIRES: head_dim and
// context_length are read.
absl::Status ReadGgufRope(const GgufKeys& keys, ModelConfig* model);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_GGUF_ROPE_H_
