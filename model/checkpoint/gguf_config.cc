#include "model/checkpoint/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/checkpoint/end_names.h"
#include "model/checkpoint/gguf_keys.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

// Keys that would change the result. A key with a neutral value must have that value or be absent;
// a key without one must be absent. llama.cpp reads some of them only for other architectures, but
// a file that has such a key means it. Keys with a `family` are checked for that family only.
constexpr struct {
  absl::string_view key;
  std::optional<double> neutral;
  absl::string_view family = "";
} kNeutral[] = {{"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.sliding_window", 0, "olmo2"},
                {"deepstack_mapping", std::nullopt, "granite"},
                {"expert_gating_func", 1},
                {"expert_shared_count", 0},
                {"expert_weights_scale", 1},
                {"nextn_predict_layers", 0},
                {"rope.dimension_sections", std::nullopt, "glm4"},
                {"rope.scaling.yarn_beta_fast", 32},
                {"rope.scaling.yarn_beta_slow", 1},
                {"rope.scaling.yarn_log_multiplier", 0}};

constexpr char kGgufExpertCount[] = "expert_count";

// Reads the keys of the file's architecture, without its prefix: "llama.block_count" as
// "block_count".
class ConfigReader {
 public:
  explicit ConfigReader(const GgufKeys& keys)
      : keys_(keys), family_(keys.family()), model_(family_.NewConfig()) {}

  absl::StatusOr<ModelConfig> Read() {
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadExperts());
    RETURN_IF_ERROR(ReadHeads());
    RETURN_IF_ERROR(ReadWindows());
    RETURN_IF_ERROR(ReadRope());
    RETURN_IF_ERROR(ReadScales());
    RETURN_IF_ERROR(ReadHead());
    RETURN_IF_ERROR(ReadBiases());
    if (model_.is_draft_head()) {
      RETURN_IF_ERROR(ReadGgufHead(keys_, &model_));
    } else if (const GgufFile& file = keys_.file(); file.Has(kGgufDraftMask)) {
      ASSIGN_OR_RETURN(model_.mask_token,
                       file.GetInteger(kGgufDraftMask, 0, model_.vocab_size - 1));
    }
    RETURN_IF_ERROR(CheckNeutral());
    RETURN_IF_ERROR(ReadEnds());
    return std::move(model_);
  }

 private:
  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(model_.num_layers, keys_.Int("block_count", 1, kMaxLayers));
    ASSIGN_OR_RETURN(model_.hidden_size, keys_.Int("embedding_length", 1, kMaxHidden));
    ASSIGN_OR_RETURN(model_.intermediate_size, keys_.Int("feed_forward_length", 1, kMaxHidden));
    ASSIGN_OR_RETURN(model_.context_length, keys_.Int("context_length", 1, kMaxContext));
    ASSIGN_OR_RETURN(model_.rms_norm_epsilon, keys_.Number(model_.norm_form == NormForm::kRms
                                                               ? "attention.layer_norm_rms_epsilon"
                                                               : "attention.layer_norm_epsilon",
                                                           kMinEpsilon, 1.0));
    const GgufTensor* const embedding = keys_.Tensor("token_embd.weight");
    model_.has_own_embedding = model_.is_draft_head() && embedding != nullptr;
    if (model_.is_draft_head() && embedding == nullptr) {
      ASSIGN_OR_RETURN(model_.vocab_size, GgufTargetVocabulary(keys_));
      return absl::OkStatus();
    }
    if (embedding == nullptr) return keys_.NoTensor("token_embd.weight");
    if (embedding->shape.size() != 2 || embedding->shape[0] > kMaxVocab) {
      return keys_.WrongTensor(*embedding, absl::StrCat("shape ", ShapeText(embedding->shape)),
                               absl::StrCat("[at most ", kMaxVocab, ", ", model_.hidden_size, "]"));
    }
    model_.vocab_size = static_cast<int>(embedding->shape[0]);
    return absl::OkStatus();
  }

  // The reference has experts in every layer and normalises their weights to a sum of 1.
  absl::Status ReadExperts() {
    constexpr char kSize[] = "expert_feed_forward_length";
    constexpr char kGroups[] = "expert_group_count";
    ASSIGN_OR_RETURN(model_.num_experts, GgufExpertCount(keys_.file(), family_));
    if (model_.num_experts == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(model_.experts_per_row, keys_.Int("expert_used_count", 1, model_.num_experts));
    model_.expert_layers.assign(model_.num_layers, true);
    model_.renormalises_experts = true;
    model_.expert_size = model_.intermediate_size;
    if (family_.expert_rule == ExpertRule::kSparseSteps) {
      const int share = std::max(1, model_.intermediate_size / model_.experts_per_row);
      ASSIGN_OR_RETURN(const int size, keys_.Int(kSize, 0, kMaxHidden, share));
      model_.expert_size = size == 0 ? share : size;
    }
    ASSIGN_OR_RETURN(const int groups, keys_.Int(kGroups, 0, kMaxExperts, 0));
    if (groups > 1) return keys_.WouldChange(kGroups, groups, "0, 1");
    return CheckIsTrue("expert_weights_norm");
  }

  absl::Status ReadHeads() {
    ASSIGN_OR_RETURN(model_.num_heads, keys_.Int("attention.head_count", 1, kMaxHeads));
    ASSIGN_OR_RETURN(model_.num_kv_heads,
                     keys_.Int("attention.head_count_kv", 1, kMaxHeads, model_.num_heads));
    if (model_.num_heads % model_.num_kv_heads != 0) {
      return keys_.KeyNotAllowed("attention.head_count_kv", model_.num_kv_heads,
                                 absl::StrCat("a divisor of ", model_.num_heads, ", the value of ",
                                              keys_.FullName("attention.head_count")));
    }
    if (!keys_.Has("attention.key_length") && model_.hidden_size % model_.num_heads != 0) {
      return keys_.KeyNotAllowed(
          "attention.key_length", "nothing",
          absl::StrCat("an even integer, as ", keys_.FullName("embedding_length"), " ",
                       model_.hidden_size, " is not a multiple of ", model_.num_heads, " heads"));
    }
    const int even_share = model_.hidden_size / model_.num_heads;
    ASSIGN_OR_RETURN(model_.head_dim,
                     keys_.Int("attention.key_length", 1, kMaxHeadDim, even_share));
    if (model_.head_dim % 2 != 0 || model_.head_dim > kMaxHeadDim || model_.head_dim == 0) {
      return keys_.KeyNotAllowed("attention.key_length", model_.head_dim,
                                 absl::StrCat("an even integer from 2 to ", kMaxHeadDim));
    }
    if (keys_.form().heads_fill_rows && model_.head_dim != even_share) {
      return keys_.KeyNotAllowed(
          "attention.key_length", model_.head_dim,
          absl::StrCat(even_share, ", so that the heads fill ", keys_.FullName("embedding_length"),
                       " ", model_.hidden_size));
    }
    ASSIGN_OR_RETURN(const int value_length,
                     keys_.Int("attention.value_length", 1, kMaxHeadDim, even_share));
    if (value_length != model_.head_dim) {
      return keys_.KeyNotAllowed("attention.value_length", value_length,
                                 absl::StrCat(model_.head_dim, ", the length of a key"));
    }
    return absl::OkStatus();
  }

  // Reads which layers have a sliding window, and derives the rotation of each layer.
  absl::Status ReadWindows() {
    constexpr char kKey[] = "attention.sliding_window";
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    model_.windows.assign(model_.num_layers, 0);
    // Mixtral uses the rule of llama.
    const WindowRule rule =
        FamilyOfGguf(keys_.form().architecture, /*has_experts=*/false)->window_rule;
    const bool has_pattern = rule == WindowRule::kPattern;
    int window = keys_.form().window;
    // For other rules the key means nothing: some converters write it even for models without a
    // window.
    const bool is_read = has_pattern || rule == WindowRule::kEveryLayer;
    if (is_read && (keys_.Has(kKey) || window < 0)) {
      const int least = window == 0 ? 0 : 1;
      ASSIGN_OR_RETURN(window, keys_.Int(kKey, least, kMaxContext));
    }
    std::vector<bool> slides(model_.num_layers, true);
    if (has_pattern) {
      ASSIGN_OR_RETURN(slides, ReadPattern(kPattern));
    }
    constexpr int kUnrotated = 4;  // every fourth layer; GGUF files do not store the list
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      if (slides[layer]) model_.windows[layer] = window;
      model_.rotations.push_back(
          family_.RotationOf(model_.windows[layer] > 0, (layer + 1) % kUnrotated != 0));
    }
    return absl::OkStatus();
  }

  // Returns [num_layers], from a list, or from a number n: all layers but each n-th slide.
  absl::StatusOr<std::vector<bool>> ReadPattern(const char* key) const {
    std::vector<bool> slides(model_.num_layers);
    if (keys_.IsArray(key)) {
      ASSIGN_OR_RETURN(const std::vector<bool> list, keys_.Bools(key));
      if (list.size() == slides.size()) return list;
      return keys_.KeyNotAllowed(key, absl::StrCat(list.size(), " elements"),
                                 absl::StrCat("one for each of the ", slides.size(), " layers"));
    }
    ASSIGN_OR_RETURN(const int pattern, keys_.Int(key, 0, kMaxLayers, family_.window_pattern));
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      slides[layer] = pattern == 0 || (layer + 1) % pattern != 0;
    }
    return slides;
  }

  // Reads the rotary embeddings and rotary_dim as llama.cpp does. Yarn also lengthens the context.
  absl::Status ReadRope() {
    RopeConfig& rope = model_.rope;
    constexpr char kBase[] = "rope.freq_base";
    constexpr char kLocalBase[] = "rope.freq_base_swa";
    ASSIGN_OR_RETURN(rope.theta, keys_.Number(kBase, 1, kMaxTheta, rope.theta));
    if (keys_.Has(kLocalBase)) {
      ASSIGN_OR_RETURN(const double theta, keys_.Number(kLocalBase, 1, kMaxTheta));
      const bool has_local = keys_.family().rotation_rule == RotationRule::kLocalWindows;
      if (has_local) model_.local_rope.theta = theta;
      if (!has_local && keys_.family().window_rule == WindowRule::kPattern && theta != rope.theta) {
        return keys_.KeyNotAllowed(
            kLocalBase, theta, absl::StrCat(rope.theta, ", as ", keys_.FullName(kBase), " says"));
      }
    }
    RETURN_IF_ERROR(ReadRotaryDim());
    RETURN_IF_ERROR(ReadScaling());
    return ReadDivisors();
  }

  absl::Status ReadRotaryDim() {
    constexpr char kKey[] = "rope.dimension_count";
    ASSIGN_OR_RETURN(model_.rotary_dim, keys_.Int(kKey, 1, kMaxHeadDim, model_.head_dim));
    const bool may_be_partial = keys_.family().partial_rotary > 0.0;
    if (!may_be_partial && model_.rotary_dim != model_.head_dim) {
      return keys_.KeyNotAllowed(kKey, model_.rotary_dim,
                                 absl::StrCat(model_.head_dim, ", the whole head"));
    }
    if (model_.rotary_dim % 2 != 0 || model_.rotary_dim > model_.head_dim) {
      return keys_.KeyNotAllowed(
          kKey, model_.rotary_dim,
          absl::StrCat("an even integer up to ", model_.head_dim, ", a whole head"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadScaling() {
    RopeConfig& rope = model_.rope;
    constexpr char kType[] = "rope.scaling.type";
    constexpr char kMagnitude[] = "rope.scaling.attn_factor";
    // The type is linear if only a factor is given.
    ASSIGN_OR_RETURN(const std::string_view type, keys_.String(kType, "linear"));
    double factor = 1.0;
    // The second key is the name of the first in the format's first year.
    for (const char* const key : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (!keys_.Has(key)) continue;
      ASSIGN_OR_RETURN(factor, keys_.Number(key, 0, kMaxRopeFactor));
      if (factor == 0) factor = 1.0;  // as in the reference
      break;
    }
    ASSIGN_OR_RETURN(rope.magnitude, keys_.Number(kMagnitude, kMinMultiplier, kMaxMultiplier, 1.0));
    model_.local_rope.magnitude = rope.magnitude;
    const bool takes_factors = keys_.form().extras != GgufExtras::kNone;
    if (type == "none") return absl::OkStatus();
    if (type == "linear") {
      if (factor != 1.0) rope.type = RopeConfig::Type::kLinear;
      rope.factor = factor;
      return absl::OkStatus();
    }
    if (type == "yarn") return ReadYarn(factor);
    if (type != "longrope" || !takes_factors) {
      return keys_.KeyNotAllowed(
          kType, Quoted(View(type)),
          absl::StrCat("none, linear, yarn", takes_factors ? ", longrope" : ""));
    }
    rope.type = RopeConfig::Type::kLongRope;
    if (factor == 1.0) return absl::OkStatus();
    return keys_.KeyNotAllowed("rope.scaling.factor", factor, "nothing with longrope");
  }

  absl::StatusOr<int> ReadOriginalContext() const {
    return keys_.Int("rope.scaling.original_context_length", 1, kMaxContext, model_.context_length);
  }

  // The reference derives the factor of cosines and sines from the scaling factor and ignores
  // yarn_attn_factor; a file may state the derived value there.
  absl::Status ReadYarn(double factor) {
    RopeConfig& rope = model_.rope;
    constexpr char kBase[] = "rope.freq_base";
    constexpr char kFactor[] = "rope.scaling.factor";
    constexpr char kOwn[] = "rope.scaling.yarn_attn_factor";
    rope.type = RopeConfig::Type::kYarn;
    rope.factor = factor;
    if (rope.theta <= 1.0) return keys_.KeyNotAllowed(kBase, rope.theta, "more than 1");
    if (factor < 1.0) return keys_.KeyNotAllowed(kFactor, factor, "at least 1 with yarn");
    ASSIGN_OR_RETURN(rope.original_context, ReadOriginalContext());
    const double derived = 0.1 * std::log(factor) + 1.0;
    if (keys_.Has(kOwn)) {
      ASSIGN_OR_RETURN(const double own, keys_.Number(kOwn, 0, kMaxMultiplier));
      if (own != 1.0 && std::abs(own - derived) > 1e-6) {
        return keys_.KeyNotAllowed(kOwn, own, absl::StrCat("1, or ", derived, " as derived"));
      }
    }
    rope.magnitude *= derived;
    const double context = factor * rope.original_context;
    if (context > kMaxContext) {
      return keys_.KeyNotAllowed(kFactor, factor,
                                 absl::StrCat("at most ", kMaxContext, " positions in all"));
    }
    model_.context_length = static_cast<int>(context);
    return absl::OkStatus();
  }

  // Reads the tensors whose elements divide the angles.
  absl::Status ReadDivisors() {
    RopeConfig& rope = model_.rope;
    const bool is_longrope = rope.type == RopeConfig::Type::kLongRope;
    const bool wants_freqs = keys_.form().extras == GgufExtras::kLlamas && !is_longrope;
    ASSIGN_OR_RETURN(rope.divisors, ReadDivisors(kGgufDivisors, wants_freqs));
    const bool may_have_factors = is_longrope || (keys_.form().extras == GgufExtras::kRopeFactors &&
                                                  rope.type == RopeConfig::Type::kDefault);
    ASSIGN_OR_RETURN(rope.long_divisors, ReadDivisors(kGgufLongDivisors, may_have_factors));
    ASSIGN_OR_RETURN(rope.short_divisors, ReadDivisors(kGgufShortDivisors, may_have_factors));
    if (rope.long_divisors.empty() && rope.short_divisors.empty() && !is_longrope) {
      return absl::OkStatus();
    }
    for (const char* const name : {kGgufLongDivisors, kGgufShortDivisors}) {
      if (keys_.Tensor(name) == nullptr) return keys_.NoTensor(name);
    }
    rope.type = RopeConfig::Type::kLongRope;
    ASSIGN_OR_RETURN(rope.original_context, ReadOriginalContext());
    return absl::OkStatus();
  }

  // Returns [rotary_dim / 2] divisors, or none if the tensor is absent.
  absl::StatusOr<std::vector<float>> ReadDivisors(const char* name, bool is_allowed) const {
    std::vector<float> divisors;
    const GgufTensor* const tensor = keys_.Tensor(name);
    if (tensor == nullptr) return divisors;
    if (!is_allowed) return keys_.UnexpectedTensor(*tensor);
    const int size = model_.rotary_dim / 2;
    if (tensor->shape.size() != 1 || tensor->shape[0] != size) {
      return keys_.WrongTensor(
          *tensor, absl::StrCat("shape ", ShapeText(tensor->shape)),
          absl::StrCat("[", size, "], half of the rotated elements of a head"));
    }
    if (tensor->dtype != DType::kF32) {
      return keys_.WrongTensor(*tensor, NameOf(tensor->dtype), "float32");
    }
    divisors.resize(size);
    std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const float divisor : divisors) {
      if (!(divisor > 0) || !std::isfinite(divisor)) {
        return keys_.WrongTensor(*tensor, absl::StrCat(divisor), "finite numbers above 0");
      }
    }
    return divisors;
  }

  // Reads a multiplier. Returns `if_absent` if the key is absent or, as in the reference, 0. A
  // family without this multiplier (`is_own` is false) accepts only that value.
  absl::StatusOr<float> Scale(const char* key, bool is_own, double if_absent) const {
    if (!keys_.Has(key)) return static_cast<float>(if_absent);
    ASSIGN_OR_RETURN(const double value,
                     keys_.Number(key, is_own ? 0 : -kMaxMultiplier, kMaxMultiplier));
    if (is_own) return static_cast<float>(value == 0 ? if_absent : value);
    if (value == 0 || static_cast<float>(value) == static_cast<float>(if_absent)) {
      return static_cast<float>(if_absent);
    }
    return keys_.WouldChange(key, value, absl::StrCat(if_absent));
  }

  absl::Status ReadScales() {
    const bool is_granite = family_.Reads("residual_multiplier");
    ASSIGN_OR_RETURN(model_.embedding_scale, Scale("embedding_scale", is_granite, 1));
    if (family_.scales_embeddings_by_root) {
      model_.embedding_scale = std::sqrt(static_cast<float>(model_.hidden_size));
    }
    ASSIGN_OR_RETURN(model_.residual_scale, Scale("residual_scale", is_granite, 1));
    const bool has_other_scale = model_.num_layers == keys_.form().num_layers_scaled_by_hidden;
    const int scale_dim = has_other_scale ? model_.hidden_size / model_.num_heads : model_.head_dim;
    const float derived = 1.0f / std::sqrt(static_cast<float>(scale_dim));
    ASSIGN_OR_RETURN(model_.attention_scale, Scale("attention.scale", is_granite, derived));
    // A family that multiplies or divides logits by this key must have it.
    const bool is_divisor = family_.Reads("logits_scaling");
    const bool is_factor = family_.Reads("logit_scale");
    ASSIGN_OR_RETURN(model_.logits_scale, Scale("logit_scale", is_divisor || is_factor, 1));
    if (is_divisor || is_factor) {
      const double least = is_divisor ? kMinMultiplier : 0;
      RETURN_IF_ERROR(keys_.Number("logit_scale", least, kMaxMultiplier).status());
    }
    if (is_divisor) model_.logits_scale = 1.0f / model_.logits_scale;
    const ModelFamily::Defaults& defaults = family_.defaults;
    ASSIGN_OR_RETURN(model_.attention_soft_cap,
                     SoftCap("attn_logit_softcapping", defaults.attention_soft_cap > 0,
                             defaults.attention_soft_cap));
    ASSIGN_OR_RETURN(model_.logits_soft_cap,
                     SoftCap("final_logit_softcapping", family_.Reads("final_logit_softcapping"),
                             defaults.logits_soft_cap));
    return absl::OkStatus();
  }

  // Reads a soft cap; 0 means none. A family whose default is a cap cannot turn it off.
  absl::StatusOr<float> SoftCap(const char* key, bool is_own, double if_absent) const {
    if (!keys_.Has(key)) return static_cast<float>(if_absent);
    ASSIGN_OR_RETURN(const double value,
                     keys_.Number(key, if_absent > 0 ? kMinMultiplier : 0, kMaxMultiplier));
    if (!is_own && value != 0) return keys_.WouldChange(key, value, "0");
    return static_cast<float>(value);
  }

  // Reads whether the model has a head of its own or uses its embedding.
  absl::Status ReadHead() {
    constexpr char kHead[] = "output.weight";
    const GgufTensor* const head = keys_.Tensor(kHead);
    model_.tied_embeddings = head == nullptr;
    if (head == nullptr && keys_.form().head == GgufHead::kOwn) {
      return keys_.NoTensor(kHead);
    }
    if (head != nullptr && keys_.form().head == GgufHead::kTied)
      return keys_.UnexpectedTensor(*head);
    return absl::OkStatus();
  }

  absl::Status ReadBiases() {
    const GgufTensor* const output = keys_.Tensor("blk.0.attn_output.bias");
    const GgufTensor* const mlp = keys_.Tensor("blk.0.ffn_gate.bias");
    model_.qkv_bias = keys_.Tensor("blk.0.attn_q.bias") != nullptr ||
                      keys_.Tensor("blk.0.attn_qkv.bias") != nullptr;
    model_.output_bias = output != nullptr;
    model_.mlp_bias = mlp != nullptr;
    for (const GgufTensor* const bias : {output, mlp}) {
      if (bias != nullptr && keys_.form().extras != GgufExtras::kLlamas)
        return keys_.UnexpectedTensor(*bias);
    }
    if (mlp != nullptr && model_.num_experts > 0) return keys_.UnexpectedTensor(*mlp);
    return absl::OkStatus();
  }

  absl::Status CheckNeutral() const {
    for (const auto& [key, neutral, family] : kNeutral) {
      if (!family.empty() && family != model_.family) continue;
      if (neutral.has_value()) {
        RETURN_IF_ERROR(CheckIs(key, *neutral));
      } else if (keys_.Has(key)) {
        return keys_.KeyNotAllowed(key, "a value", "no such key");
      }
    }
    if (model_.num_experts == 0) {
      RETURN_IF_ERROR(CheckIs(kGgufExpertCount, 0));
      RETURN_IF_ERROR(CheckIs("expert_used_count", 0));
    }
    RETURN_IF_ERROR(CheckIsTrue("attention.causal"));
    // In a granite model this key says whether there are rotary embeddings at all.
    if (model_.family != "granite") return absl::OkStatus();
    return CheckIsTrue("rope.scaling.finetuned");
  }

  absl::Status CheckIs(absl::string_view key, double neutral) const {
    if (!keys_.Has(key)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double value, keys_.file().GetNumber(keys_.FullName(key)));
    if (value == neutral) return absl::OkStatus();
    return keys_.WouldChange(key, value, absl::StrCat(neutral));
  }

  absl::Status CheckIsTrue(const char* key) const {
    if (!keys_.Has(key)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool value, keys_.Bool(key));
    return value ? absl::OkStatus() : keys_.KeyNotAllowed(key, "false", "true");
  }

  absl::Status ReadEnds() {
    const GgufFile& file = keys_.file();
    for (const std::string_view key : kGgufEnds) {
      if (!file.Has(key)) continue;
      ASSIGN_OR_RETURN(const TokenId id, file.GetInteger(key, 0, model_.vocab_size - 1));
      AddEnd(id);
    }
    for (const FillEnd& part : FillEnds()) {
      if (!file.Has(part.gguf_key)) continue;
      ASSIGN_OR_RETURN(const TokenId id, file.GetInteger(part.gguf_key, 0, model_.vocab_size - 1));
      AddEnd(id);
    }
    return file.Has(kGgufTokens) ? ReadEndsByName() : absl::OkStatus();
  }

  absl::Status ReadEndsByName() {
    const GgufFile& file = keys_.file();
    ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file.GetStrings(kGgufTokens));
    const size_t size = std::min(tokens.size(), static_cast<size_t>(model_.vocab_size));
    HashMap<std::string_view, TokenId> ids;
    ids.reserve(size);
    for (size_t id = 0; id < size; ++id) ids.emplace(tokens[id], static_cast<TokenId>(id));
    const auto id_of = [&](std::string_view name) {
      const auto it = ids.find(name);
      return it == ids.end() ? -1 : it->second;
    };
    AddEndsByName(
        id_of, [&](const FillEnd& part) { return file.Has(part.gguf_key); }, &model_.eos_token_ids);
    model_.has_ends_by_name = true;
    return absl::OkStatus();
  }

  void AddEnd(TokenId id) {
    if (!absl::c_linear_search(model_.eos_token_ids, id)) model_.eos_token_ids.push_back(id);
  }

  const GgufKeys& keys_;
  const ModelFamily& family_;
  ModelConfig model_;
};

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  ASSIGN_OR_RETURN(const ModelFamily* const family, GgufFamilyOf(file));
  return ConfigReader(GgufKeys(file, *family)).Read();
}

absl::StatusOr<const ModelFamily*> GgufFamilyOf(const GgufFile& file) {
  constexpr char kKey[] = "general.architecture";
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString(kKey));
  const std::string count = absl::StrCat(View(name), ".", kGgufExpertCount);
  int64_t num_experts = 0;
  if (file.Has(count)) {
    ASSIGN_OR_RETURN(num_experts, file.GetInteger(count, 0, kMaxExperts));
  }
  const ModelFamily* const found = FamilyOfGguf(View(name), /*has_experts=*/num_experts > 0);
  if (found != nullptr) return found;
  std::vector<absl::string_view> allowed;
  for (const ModelFamily& family : ModelFamilies()) {
    const char* const architecture = family.gguf.architecture;
    if (architecture != nullptr && !absl::c_linear_search(allowed, architecture)) {
      allowed.emplace_back(architecture);
    }
  }
  return NotAllowed(absl::StrCat(file.path(), ": key ", Quoted(kKey)), Quoted(View(name)),
                    absl::StrJoin(allowed, ", "));
}

absl::StatusOr<int> GgufExpertCount(const GgufFile& file, const ModelFamily& family) {
  if (family.expert_rule == ExpertRule::kNone) return 0;
  return GgufKeys(file, family).Int(kGgufExpertCount, 1, kMaxExperts);
}

}  // namespace tandem
