// The parts of TransformerLoader that are specific to draft heads.
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/model_tensors.h"
#include "model/transformer_loader.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

absl::Status WrongHead(const std::string& path, absl::string_view key, int found, int allowed) {
  return NotAllowed(absl::StrCat(path, ": ", key), absl::StrCat(found),
                    absl::StrCat(allowed, ", the value of the draft head's target"));
}

// Chooses the layers of the target whose inputs the head reads: those that its files name,
// otherwise the default ones.
absl::Status ChooseTargetLayers(const std::string& path, int num_layers, ModelConfig* config) {
  std::vector<int>& layers = config->target_layers;
  const auto wrong = [&](absl::string_view found, absl::string_view allowed) {
    return NotAllowed(absl::StrCat(path, ": eagle_aux_hidden_state_layer_ids"), found, allowed);
  };
  if (config->state_input == StateInput::kFused) {
    layers = {num_layers};
  } else if (layers.empty()) {
    layers = {2, num_layers / 2, num_layers - 3};
    if (num_layers < 3) {
      return wrong("none", absl::StrCat("layers of the target, whose ", num_layers,
                                        " are too few for the default ones"));
    }
  } else if (!absl::c_is_sorted(layers)) {
    Log(LogLevel::kWarning,
        absl::StrCat(
            path, ": eagle_aux_hidden_state_layer_ids: [", absl::StrJoin(layers, ", "),
            "] are not in ascending order, in which heads are trained; drafts may be poor"));
  }
  for (const int layer : layers) {
    if (layer <= num_layers) continue;
    return wrong(absl::StrCat("layer ", layer),
                 absl::StrCat("up to ", num_layers, ", the target's number of layers"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TransformerLoader::FitToTarget(const std::string& path,
                                            const Transformer::LoadOptions& options,
                                            ModelConfig* config) {
  ModelConfig& c = *config;
  if (!c.is_draft_head()) {
    if (options.target == nullptr) return absl::OkStatus();
    return NotAllowed(path, absl::StrCat("a ", c.family, " model"), "a draft head");
  }
  if (options.target == nullptr) {
    return NotAllowed(path, "a draft head", "a model that reads only tokens");
  }
  const ModelConfig& target = options.target->config();
  TANDEM_CHECK(!target.is_draft_head() && options.group == nullptr);
  if (options.head_tokens > 0) {
    return FieldError("draft_head_tokens",
                      absl::StrCat("found ", options.head_tokens, ", allowed with a draft head: ",
                                   "none, because it has its own vocabulary"));
  }
  const struct {
    const char* key;
    int found, allowed;
  } same[] = {{"num_key_value_heads", c.num_kv_heads, target.num_kv_heads},
              {"head_dim", c.head_dim, target.head_dim},
              {"vocab_size", c.vocab_size, target.vocab_size},
              {"target_hidden_size", c.target_hidden_size, target.hidden_size}};
  for (const auto& [key, found, allowed] : same) {
    if (found != allowed) return WrongHead(path, key, found, allowed);
  }
  // The head's rows are added to, or multiplied with, rows of the target.
  const bool shares_rows = !c.has_own_embedding || c.tied_embeddings;
  if (shares_rows && c.hidden_size != target.hidden_size) {
    return WrongHead(path, "hidden_size", c.hidden_size, target.hidden_size);
  }
  RETURN_IF_ERROR(ChooseTargetLayers(path, target.num_layers, &c));
  c.context_length = target.context_length;
  return absl::OkStatus();
}

absl::Status TransformerLoader::LoadStateParts() {
  const ModelConfig& c = files_.config;
  TransformerWeights::StateParts& parts = loaded_->state_parts;
  if (!c.has_own_embedding) {
    loaded_->embedding = options_.target->embedding();
    loaded_->host_embedding = options_.target->host_embedding();
  }
  const auto load_norm = [&](absl::string_view name, Buffer* norm) -> absl::Status {
    ASSIGN_OR_RETURN(*norm, Vector(absl::StrCat(name, ".weight"), c.hidden_size));
    return absl::OkStatus();
  };
  const bool is_fused = c.state_input == StateInput::kFused;
  const std::string layer = is_fused ? "" : "model.layers.0.";
  RETURN_IF_ERROR(load_norm(absl::StrCat(layer, kStateNorm), &parts.state_norm));
  if (is_fused) RETURN_IF_ERROR(load_norm(kEmbeddingNorm, &parts.embedding_norm));
  if (c.norms_states) {
    ASSIGN_OR_RETURN(parts.states_norm, Vector(kStatesNorm, c.read_state_size()));
  }
  return Projections("", {"fc"}, {Outputs{c.hidden_size, {0, c.hidden_size}}}, c.fc_inputs(),
                     /*has_bias=*/false, &parts.fc);
}

absl::Status TransformerLoader::LoadDraftHead() {
  const ModelConfig& c = files_.config;
  ASSIGN_OR_RETURN(DraftVocabulary vocabulary, ReadDraftVocabulary(*files_.weights, c));
  loaded_->num_head_tokens = c.draft_vocab_size;
  loaded_->head_ids = std::move(vocabulary.ids);
  if (!c.tied_embeddings) {
    const std::string name = kHeadTensor;
    ASSIGN_OR_RETURN(const ConstMatrixView matrix, Matrix(name, c.draft_vocab_size, c.hidden_size));
    if (vocabulary.rows.empty()) {
      return Pack({{.matrix = matrix}}, PartOrder::kConcatenated, kHeadFormat, {name},
                  &loaded_->head);
    }
    ASSIGN_OR_RETURN(const ConstMatrixView whole,
                     files_.weights->Get(name, {c.draft_vocab_size, c.hidden_size}));
    return PackDraftHead(whole, vocabulary.rows);
  }
  ASSIGN_OR_RETURN(const ConstMatrixView whole, options_.target->HeadMatrix());
  RETURN_IF_ERROR(PackDraftHead(whole, loaded_->head_ids));
  options_.target->ForgetHeadMatrix();
  return absl::OkStatus();
}

// Packs `rows` of the matrix, or all of them, at load. Does not use the cache of packed weights,
// which does not record where these rows come from.
absl::Status TransformerLoader::PackDraftHead(ConstMatrixView matrix,
                                              absl::Span<const TokenId> rows) {
  if (only_checks_) return absl::OkStatus();
  std::vector<std::byte> gathered;
  if (!rows.empty()) matrix = GatheredRows(matrix, rows, &gathered);
  const WeightPart part{.matrix = matrix};
  ASSIGN_OR_RETURN(loaded_->head, backend_->Pack({&part, 1}, PartOrder::kConcatenated,
                                                 FormatOf(matrix, kHeadFormat)));
  loaded_->bytes_packed_at_load += loaded_->head.data.size_bytes();
  return absl::OkStatus();
}

}  // namespace tandem
