#ifndef TANDEM_MODEL_CHECKPOINT_MODEL_TENSORS_H_
#define TANDEM_MODEL_CHECKPOINT_MODEL_TENSORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"

namespace tandem {

inline constexpr char kEmbeddingTensor[] = "model.embed_tokens.weight";
inline constexpr char kHeadTensor[] = "lm_head.weight";

// The role of a checkpoint's tensor in a decoding step.
enum class TensorRole {
  kEmbedding,  // one row of it is read, unless it is the head as well
  kMatrix,     // read whole
  kRouter,     // read whole; its output selects the experts
  kExpert,     // belongs to one expert of a layer: read if the expert is selected
  kNorm,
  kBias,
};

struct TensorSpec {
  std::string name;            // as Transformer reads it (ArrangeWeights)
  std::vector<int64_t> shape;  // [outputs, inputs] or [size]
  TensorRole role = TensorRole::kMatrix;

  int64_t num_elements() const;
};

// Returns the tensors of a model of this configuration, sorted by name.
std::vector<TensorSpec> TensorsOf(const ModelConfig& config);

// Returns the share of the tensor's elements that a decoding step reads. For an expert it is the
// share of the layer's experts that a row goes through. Norms, biases and one row of embeddings do
// not count.
double ShareRead(const TensorSpec& tensor, const ModelConfig& config);

// Presents a checkpoint's tensors as Transformer reads them, whatever the family stores:
// - under Llama's names, and those of model_families.h for norms of outputs, for GGUF files too;
//   without the prefix of a model with parts other than text;
// - without tensors that cannot change the result (kUnused in model_tensors.cc);
// - the head as the embedding, too, if the configuration ties them and the file has
//   no other embedding;
// - each projection by itself: its rows of qkv_proj or gate_up_proj;
// - with the rows of queries and keys in an order in which elements i and i + head_dim / 2 of a
//   head are rotated together and elements without rotation come last in each half. Scores do not
//   depend on the order of elements, as long as queries and keys share it;
// - with the family's offset added to the weights of norms;
// - with the ids of a draft head's logits, "d2t", as absolute ids of the target.
// A rearranged tensor is copied when it is read, and kept until it is forgotten.
//
// INVALID_ARGUMENT, naming both tensors, if two of `stored` have the same place, or if the
// architecture of a GGUF file is not the family's.
absl::StatusOr<std::shared_ptr<const Weights>> ArrangeWeights(std::shared_ptr<const Weights> stored,
                                                              const ModelConfig& config);

// Returns whether the configuration ties the head to the embedding, but the arranged `weights` have
// both. Draft heads need no tie: they use the target's tensors in place of missing ones.
bool HasDoubtfulHead(const Weights& weights, const ModelConfig& config);
// Decides such a doubt as transformers 5 does: a head that differs from the embedding is used, and
// config->tied_embeddings becomes false, with a warning in the log; an equal one stays tied. Reads
// both tensors unless `is_equal` is known.
absl::Status SettleHead(const Weights& weights, std::optional<bool> is_equal, ModelConfig* config);

// INVALID_ARGUMENT, naming it, if a tensor has no place in a model of this configuration: to ignore
// it could change the result. REQUIRES: SettleHead and CompleteHead have succeeded.
absl::Status CheckAllHavePlaces(const Weights& weights, const ModelConfig& config);

// Returns whether queries and keys that are stored in `pairs` need another order of rows for
// Transformer.
bool OrdersHeads(const ModelConfig& config, RotaryPairs pairs);
// Returns which row of the stored head becomes row `to` of the head that Transformer reads.
int64_t StoredRow(const ModelConfig& config, RotaryPairs pairs, int64_t to);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_MODEL_TENSORS_H_
