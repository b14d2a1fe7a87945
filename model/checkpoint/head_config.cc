#include "model/checkpoint/head_config.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"

namespace tandem {
namespace {

using Json = SortedJson;

constexpr char kSpeculatorsType[] = "speculators_model_type";
constexpr char kDraftVocab[] = "draft_vocab_size";
constexpr char kLayerIds[] = "eagle_aux_hidden_state_layer_ids";
constexpr char kEagleConfig[] = "eagle_config";
constexpr int kEagle3States = 3;  // low, middle and high

// Returns whether `architectures` has the name.
bool HasArchitecture(const ConfigFields& config, absl::string_view name) {
  const Json* const list = config.Find("architectures");
  return list != nullptr && list->is_array() &&
         absl::c_any_of(*list, [&](const Json& found) { return IsText(found, name); });
}

// Reads a list of layers of the target. In SGLang's object, layer i means the output of layer i,
// which is the input of the next layer: `offset` is 1 there.
absl::StatusOr<std::vector<int>> ReadLayerIds(const ConfigFields& fields, int offset) {
  std::vector<int> layers;
  const Json* const list = fields.Find(kLayerIds);
  if (list == nullptr) return layers;
  const std::string allowed =
      absl::StrCat("a list of up to ", kMaxTargetStates, " layers below ", kMaxLayers);
  if (!list->is_array() || list->size() > size_t{kMaxTargetStates})
    return fields.Wrong(kLayerIds, allowed);
  for (const Json& layer : *list) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= uint64_t{kMaxLayers}) {
      return fields.Wrong(kLayerIds, allowed);
    }
    layers.push_back(layer.get<int>() + offset);
  }
  return layers;
}

// Checks that no other key changes the result. REQUIRES: the list of layers has been read.
absl::Status CheckEagleKeys(const ConfigFields& fields) {
  for (const char* const key :
       {"use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm"}) {
    RETURN_IF_ERROR(fields.Only(key, true));
  }
  for (const auto& [key, value] : fields.object().items()) {
    if (fields.WasRead(key) || value.is_null() || value == false) continue;
    return fields.Wrong(key, "nothing, null or false (not implemented)");
  }
  return absl::OkStatus();
}

absl::Status ReadTargetLayers(const ConfigFields& whole, ModelConfig* model) {
  ASSIGN_OR_RETURN(model->target_layers, ReadLayerIds(whole, /*offset=*/0));
  if (whole.Find(kEagleConfig) == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ConfigFields fields, whole.Object(kEagleConfig));
  ASSIGN_OR_RETURN(const std::vector<int> layers, ReadLayerIds(fields, /*offset=*/1));
  RETURN_IF_ERROR(CheckEagleKeys(fields));
  if (layers.empty()) return absl::OkStatus();
  if (!model->target_layers.empty() && model->target_layers != layers) {
    return fields.Wrong(kLayerIds, absl::StrCat("nothing next to ", kLayerIds));
  }
  model->target_layers = layers;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const ModelFamily*> HeadFamilyOf(const ConfigFields& whole) {
  const ModelFamily* const eagle3 = FamilyOfType("eagle3");
  if (whole.Has(kSpeculatorsType)) {
    const Json* const type = whole.Find(kSpeculatorsType);
    if (type != nullptr && IsText(*type, eagle3->model_type)) return eagle3;
    return whole.Wrong(kSpeculatorsType, eagle3->model_type);
  }
  for (const char* const type : {"eagle3", "one_layer_head"}) {
    const ModelFamily* const family = FamilyOfType(type);
    const Json* const found = whole.Find("model_type");
    if (HasArchitecture(whole, family->architecture) ||
        (found != nullptr && IsText(*found, type))) {
      return family;
    }
  }
  const Json* const num_layers = whole.Find("num_hidden_layers");
  const bool is_older = HasArchitecture(whole, "LlamaForCausalLM") &&
                        whole.object().contains(kDraftVocab) && num_layers != nullptr &&
                        *num_layers == 1;
  return is_older ? eagle3 : nullptr;
}

absl::StatusOr<ConfigFields> HeadLayerOf(const ConfigFields& whole) {
  const bool is_apart = whole.Has(kSpeculatorsType);
  ASSIGN_OR_RETURN(const ConfigFields fields, is_apart ? whole.Object(kHeadLayerKey) : whole);
  const Json* const type = fields.Find("model_type");
  const bool is_read = type == nullptr || IsText(*type, "llama") ||
                       (!is_apart && (IsText(*type, "eagle3") || IsText(*type, "one_layer_head")));
  if (!is_read) return fields.Wrong("model_type", "llama, in a draft head");
  return fields;
}

absl::Status ReadHead(const ConfigFields& whole, ModelConfig* model) {
  ModelConfig& c = *model;
  if (c.num_layers != 1) {
    return NotAllowed(absl::StrCat(whole.file(), ": num_hidden_layers"), absl::StrCat(c.num_layers),
                      "1, in a draft head");
  }
  if (c.rope.type == RopeConfig::Type::kLongRope) {
    return absl::InvalidArgumentError(absl::StrCat(
        whole.file(),
        ": rope_type: found longrope, allowed in a draft head: ", "default, linear, llama3, yarn"));
  }
  ASSIGN_OR_RETURN(c.draft_vocab_size, whole.Int(kDraftVocab, 1, c.vocab_size, c.vocab_size));
  ASSIGN_OR_RETURN(c.target_hidden_size,
                   whole.Int("target_hidden_size", 1, kMaxHidden, c.hidden_size));
  if (c.state_input == StateInput::kFused) {
    if (c.target_hidden_size != c.hidden_size) {
      return whole.Wrong("target_hidden_size",
                         absl::StrCat(c.hidden_size, ", as hidden_size says"));
    }
    c.num_states = 1;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(c.norms_residual, whole.Bool("norm_before_residual", false));
  ASSIGN_OR_RETURN(c.norms_states, whole.Bool("norm_before_fc", false));
  RETURN_IF_ERROR(ReadTargetLayers(whole, model));
  if (c.target_hidden_size > kMaxHidden / kMaxTargetStates) {
    return whole.Wrong("target_hidden_size",
                       absl::StrCat("at most ", kMaxHidden / kMaxTargetStates, " in a draft head"));
  }
  c.num_states = c.target_layers.empty() ? kEagle3States : static_cast<int>(c.target_layers.size());
  return absl::OkStatus();
}

void CompleteHead(const Weights& weights, ModelConfig* model) {
  if (!model->is_draft_head()) return;
  model->has_own_embedding = weights.Has("model.embed_tokens.weight");
  model->tied_embeddings = !weights.Has("lm_head.weight");
}

namespace {

// Returns the stored row of each token of the target, or -1.
absl::StatusOr<std::vector<int64_t>> RowsOfTokens(const Weights& weights,
                                                  const ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                   weights.GetIntegers(kDraftIds, config.draft_vocab_size));
  std::vector<int64_t> row_of(config.vocab_size, -1);
  for (size_t row = 0; row < ids.size(); ++row) {
    const int64_t id = ids[row];
    const bool is_id = 0 <= id && id < config.vocab_size;
    if (!is_id || row_of[id] >= 0) {
      return NotAllowed(weights.Where(kDraftIds),
                        absl::StrCat("token ", id, " of the target for row ", row,
                                     is_id ? absl::StrCat(", as for row ", row_of[id]) : ""),
                        absl::StrCat("from 0 to ", config.vocab_size - 1, ", each once"));
    }
    row_of[id] = static_cast<int64_t>(row);
  }
  return row_of;
}

absl::Status CheckMask(const Weights& weights, const std::vector<int64_t>& row_of) {
  if (!weights.Has(kIsDrafted)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> is_drafted,
                   weights.GetIntegers(kIsDrafted, static_cast<int64_t>(row_of.size())));
  for (size_t id = 0; id < row_of.size(); ++id) {
    const int64_t wanted = row_of[id] >= 0 ? 1 : 0;
    if (is_drafted[id] == wanted) continue;
    return NotAllowed(weights.Where(kIsDrafted), absl::StrCat(is_drafted[id], " for token ", id),
                      absl::StrCat(wanted, ", as ", kDraftIds, " says"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DraftVocabulary> ReadDraftVocabulary(const Weights& weights,
                                                    const ModelConfig& config) {
  DraftVocabulary vocabulary;
  if (!weights.Has(kDraftIds) && config.draft_vocab_size == config.vocab_size) return vocabulary;
  ASSIGN_OR_RETURN(const std::vector<int64_t> row_of, RowsOfTokens(weights, config));
  RETURN_IF_ERROR(CheckMask(weights, row_of));
  for (TokenId id = 0; id < config.vocab_size; ++id) {
    if (row_of[id] < 0) continue;
    vocabulary.ids.push_back(id);
    vocabulary.rows.push_back(static_cast<TokenId>(row_of[id]));
  }
  if (!absl::c_is_sorted(vocabulary.rows)) return vocabulary;
  vocabulary.rows.clear();
  if (config.draft_vocab_size == config.vocab_size) vocabulary.ids.clear();
  return vocabulary;
}

}  // namespace tandem
