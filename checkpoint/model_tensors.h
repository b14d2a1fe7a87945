#ifndef TANDEM_CHECKPOINT_MODEL_TENSORS_H_
#define TANDEM_CHECKPOINT_MODEL_TENSORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_families.h"
#include "checkpoint/weights.h"

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
  std::string name;            // as Transformer reads it (ArrangeWeights)
  std::vector<int64_t> shape;  // [outputs, inputs] or [size]
  TensorRole role = TensorRole::kMatrix;

  int64_t num_elements() const;
};

// The tensors of a model of this configuration, sorted by name.
std::vector<TensorSpec> TensorsOf(const ModelConfig& config);

// The share of the tensor's elements that a decoding step reads: of an expert's, the share of the
// layer's experts that a row goes through; not counted are norms, biases and one row of embeddings.
double ShareRead(const TensorSpec& tensor, const ModelConfig& config);

// A checkpoint's tensors as Transformer reads them, whatever the family stores:
// - by Llama's names, and those of model_families.h for norms of outputs, GGUF files' too; without
//   the prefix of a model with other parts than text, whose tensors are left out;
// - each projection by itself: its rows of qkv_proj or gate_up_proj;
// - the rows of queries and keys in an order in which elements i and i + head_dim / 2 of a head
//   are rotated together, and elements without rotation come last in each half. Scores do not
//   depend on the order of elements, as long as queries and keys share it;
// - weights of norms with the offset that the family adds to them;
// - the ids of a draft head's logits, "d2t", as absolute ids of the target.
// A rearranged tensor is copied when it is read, and kept until it is forgotten.
//
// INVALID_ARGUMENT naming both tensors if two of `stored` have one place, or the architecture of a
// GGUF file that is not the family's.
absl::StatusOr<std::shared_ptr<const Weights>> ArrangeWeights(std::shared_ptr<const Weights> stored,
                                                              const ModelConfig& config);

// Whether queries and keys that are stored in `pairs` have rows in another order than
// Transformer's.
bool OrdersHeads(const ModelConfig& config, RotaryPairs pairs);
// Row `to` of a head as Transformer reads it: which row of the stored head it is.
int64_t StoredRow(const ModelConfig& config, RotaryPairs pairs, int64_t to);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_MODEL_TENSORS_H_
