#include "checkpoint/model_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/model_families.h"

namespace tandem {
namespace {

class Collector {
 public:
  void Matrix(std::string name, int64_t outputs, int64_t inputs,
              TensorRole role = TensorRole::kMatrix) {
    tensors_.push_back({std::move(name), {outputs, inputs}, role});
  }
  void Norm(std::string name, int64_t size) {
    tensors_.push_back({std::move(name), {size}, TensorRole::kNorm});
  }
  // A projection `name`.weight, with `name`.bias if there is one.
  void Projection(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias) {
    Matrix(absl::StrCat(name, ".weight"), outputs, inputs);
    if (has_bias) tensors_.push_back({absl::StrCat(name, ".bias"), {outputs}, TensorRole::kBias});
  }

  std::vector<TensorSpec> Sorted() && {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
    return std::move(tensors_);
  }

 private:
  std::vector<TensorSpec> tensors_;
};

void CollectLayer(const ModelConfig& c, int layer, Collector* tensors) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = absl::StrCat(prefix, "self_attn.");
  const std::string mlp = absl::StrCat(prefix, "mlp.");
  const int64_t query_size = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
  const auto norm = [&](const char* part) {
    tensors->Norm(absl::StrCat(prefix, part, ".weight"), c.hidden_size);
  };
  if (c.norms_inputs) norm(kAttentionNorm);
  if (c.norms_inputs && !c.is_parallel) norm(kMlpNorm);
  if (c.norms_outputs) norm(kAttentionOutputNorm);
  if (c.norms_outputs) norm(kMlpOutputNorm);
  if (c.state_input == StateInput::kNextToEmbedding) norm(kStateNorm);
  const int64_t inputs = c.attention_inputs();
  tensors->Projection(absl::StrCat(attention, "q_proj"), query_size, inputs, c.qkv_bias);
  tensors->Projection(absl::StrCat(attention, "k_proj"), kv_size, inputs, c.qkv_bias);
  tensors->Projection(absl::StrCat(attention, "v_proj"), kv_size, inputs, c.qkv_bias);
  if (c.query_key_norm != QueryKeyNorm::kNone) {
    const bool is_each = c.query_key_norm == QueryKeyNorm::kEachHead;
    tensors->Norm(absl::StrCat(attention, "q_norm.weight"), is_each ? c.head_dim : query_size);
    tensors->Norm(absl::StrCat(attention, "k_norm.weight"), is_each ? c.head_dim : kv_size);
  }
  tensors->Projection(absl::StrCat(attention, "o_proj"), c.hidden_size, query_size, c.output_bias);
  if (c.has_experts(layer)) {
    tensors->Matrix(absl::StrCat(mlp, "gate.weight"), c.num_experts, c.hidden_size,
                    TensorRole::kRouter);
    for (int e = 0; e < c.num_experts; ++e) {
      const std::string expert = absl::StrCat(mlp, "experts.", e, ".");
      const auto matrix = [&](const char* name, int64_t outputs, int64_t inputs) {
        tensors->Matrix(absl::StrCat(expert, name, ".weight"), outputs, inputs,
                        TensorRole::kExpert);
      };
      matrix("gate_proj", c.expert_size, c.hidden_size);
      matrix("up_proj", c.expert_size, c.hidden_size);
      matrix("down_proj", c.hidden_size, c.expert_size);
    }
    return;
  }
  tensors->Projection(absl::StrCat(mlp, "gate_proj"), c.intermediate_size, c.hidden_size,
                      c.mlp_bias);
  tensors->Projection(absl::StrCat(mlp, "up_proj"), c.intermediate_size, c.hidden_size, c.mlp_bias);
  tensors->Projection(absl::StrCat(mlp, "down_proj"), c.hidden_size, c.intermediate_size,
                      c.mlp_bias);
}

// The tensors of a draft head outside its layer.
void CollectHead(const ModelConfig& c, Collector* tensors) {
  tensors->Matrix("fc.weight", c.hidden_size, c.fc_inputs());
  if (c.norms_states) tensors->Norm(kStatesNorm, c.read_state_size());
  if (c.state_input == StateInput::kNextToEmbedding) return;
  tensors->Norm(absl::StrCat(kEmbeddingNorm, ".weight"), c.hidden_size);
  tensors->Norm(absl::StrCat(kStateNorm, ".weight"), c.hidden_size);
}

}  // namespace

int64_t TensorSpec::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<TensorSpec> TensorsOf(const ModelConfig& config) {
  Collector tensors;
  const bool is_head = config.state_input != StateInput::kNone;
  if (!is_head || config.has_own_embedding) {
    tensors.Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                   TensorRole::kEmbedding);
  }
  if (is_head) CollectHead(config, &tensors);
  for (int layer = 0; layer < config.num_layers; ++layer) CollectLayer(config, layer, &tensors);
  tensors.Norm("model.norm.weight", config.hidden_size);
  if (!config.tied_embeddings) {
    tensors.Matrix("lm_head.weight", is_head ? config.draft_vocab_size : config.vocab_size,
                   config.hidden_size);
  }
  return std::move(tensors).Sorted();
}

double ShareRead(const TensorSpec& tensor, const ModelConfig& config) {
  switch (tensor.role) {
    case TensorRole::kMatrix:
    case TensorRole::kRouter:
      return 1.0;
    case TensorRole::kExpert:
      return static_cast<double>(config.experts_per_row) / config.num_experts;
    case TensorRole::kEmbedding:
      return config.tied_embeddings ? 1.0 : 0.0;
    case TensorRole::kNorm:
    case TensorRole::kBias:
      break;
  }
  return 0.0;
}

}  // namespace tandem
