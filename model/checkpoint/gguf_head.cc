#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

constexpr int kUsualStates = 3;  // low, middle and high

absl::Status ReadExtractLayers(const GgufKeys& keys, ModelConfig* model) {
  model->num_states = kUsualStates;
  if (!keys.Has(kGgufHeadLayers)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int32_t> layers,
                   keys.file().GetIntegers(keys.FullName(kGgufHeadLayers)));
  bool are_allowed = !layers.empty() && layers.size() <= kMaxTargetStates;
  for (const int32_t layer : layers) are_allowed &= 0 <= layer && layer <= kMaxLayers;
  if (!are_allowed) {
    return keys.KeyNotAllowed(
        kGgufHeadLayers, ShapeText(std::vector<int64_t>(layers.begin(), layers.end())),
        absl::StrCat("from 1 to ", kMaxTargetStates, " layers up to ", kMaxLayers));
  }
  model->target_layers.assign(layers.begin(), layers.end());
  model->num_states = static_cast<int>(layers.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> GgufTargetVocabulary(const GgufKeys& keys) {
  constexpr char kVocab[] = "vocab_size";
  if (keys.Has(kVocab)) return keys.Int(kVocab, 1, kMaxVocab);
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, keys.file().GetStrings(kGgufTokens));
  if (!tokens.empty() && tokens.size() <= kMaxVocab) return static_cast<int>(tokens.size());
  return keys.KeyNotAllowed(
      kVocab, "nothing",
      absl::StrCat("from 1 to ", kMaxVocab, ", or as many tokens as the target has"));
}

absl::Status ReadGgufHead(const GgufKeys& keys, ModelConfig* model) {
  ModelConfig& c = *model;
  if (c.num_layers != 1) return keys.KeyNotAllowed("block_count", c.num_layers, "1");
  if (c.rope.type == RopeConfig::Type::kLongRope) {
    return keys.KeyNotAllowed("rope.scaling.type", "longrope", "another, in a draft head");
  }
  const GgufTensor* const head = keys.Tensor("output.weight");
  const GgufTensor* const ids = keys.Tensor(kDraftIds);
  const GgufTensor* const rows = head != nullptr ? head : ids;
  c.draft_vocab_size = c.vocab_size;
  if (rows != nullptr) {
    if (rows->shape[0] > c.vocab_size) {
      return keys.WrongTensor(*rows, absl::StrCat("shape ", ShapeText(rows->shape)),
                              absl::StrCat("at most ", c.vocab_size, " rows, as the target has"));
    }
    c.draft_vocab_size = static_cast<int>(rows->shape[0]);
  }
  ASSIGN_OR_RETURN(c.target_hidden_size,
                   keys.Int(kGgufHeadTargetSize, 1, kMaxHidden / kMaxTargetStates, c.hidden_size));
  if (c.state_input == StateInput::kFused) {
    if (c.target_hidden_size != c.hidden_size) {
      return keys.KeyNotAllowed(kGgufHeadTargetSize, c.target_hidden_size,
                                absl::StrCat(c.hidden_size, ", as embedding_length says"));
    }
    c.num_states = 1;
    return absl::OkStatus();
  }
  if (keys.Has(kGgufHeadNormsResidual)) {
    ASSIGN_OR_RETURN(c.norms_residual, keys.Bool(kGgufHeadNormsResidual));
  }
  c.norms_states = keys.Tensor(kStatesNorm) != nullptr;
  return ReadExtractLayers(keys, model);
}

}  // namespace tandem
