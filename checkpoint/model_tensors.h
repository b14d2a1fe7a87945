#ifndef TANDEM_CHECKPOINT_MODEL_TENSORS_H_
#define TANDEM_CHECKPOINT_MODEL_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"

namespace tandem {

// What a tensor of a checkpoint is to a decoding step.
enum class TensorRole {
  kEmbedding,  // one row of it is read, unless it is the head as well
  kMatrix,     // read whole
  kRouter,     // likewise, and what it says decides which experts are chosen
  kExpert,     // of one expert of a layer: read if it is chosen
  kNorm,
  kBias,
};

struct TensorSpec {
  std::string name;            // as Transformer reads it (checkpoint/arranged_weights.h)
  std::vector<int64_t> shape;  // [outputs, inputs] or [size]
  TensorRole role = TensorRole::kMatrix;

  int64_t num_elements() const;
};

// The tensors of a model of this configuration, sorted by name.
std::vector<TensorSpec> TensorsOf(const ModelConfig& config);

// The share of the tensor's elements that a decoding step reads: of an expert's, the share of the
// layer's experts that a row goes through; not counted are norms, biases and one row of embeddings.
double ShareRead(const TensorSpec& tensor, const ModelConfig& config);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_MODEL_TENSORS_H_
