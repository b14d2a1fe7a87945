#include "model/gguf_config.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/config_limits.h"
#include "model/formats/json_text.h"
#include "model/formats/weights.h"
#include "model/model_families.h"

namespace tandem {
namespace {

// Keys of an architecture that change the result unless they have this value, or are absent where
// it is none. Some of them llama.cpp reads for other architectures only; there is nobody who would
// write them in vain. Those of `family` alone it reads for that one.
constexpr struct {
  absl::string_view key;
  std::optional<double> neutral;
  absl::string_view family = "";
} kNeutral[] = {{"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.sliding_window", 0, "olmo2"},
                {"deepstack_mapping", std::nullopt, "granite"},
                {"expert_count", 0},
                {"expert_used_count", 0},
                {"nextn_predict_layers", 0},
                {"rope.dimension_sections", std::nullopt, "glm4"},
                {"rope.scaling.yarn_beta_fast", 32},
                {"rope.scaling.yarn_beta_slow", 1},
                {"rope.scaling.yarn_log_multiplier", 0}};

// The ids that end a text.
constexpr std::string_view kEndKeys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
// Tokens that end a turn where a file says of no token that it does: llama.cpp takes these then.
constexpr std::string_view kTurnKey = kEndKeys[1];
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",
                                          "<EOT>"};

// Reads the keys of the file's architecture, "llama.block_count" as "block_count".
class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  absl::StatusOr<ModelConfig> Read() {
    RETURN_IF_ERROR(ReadArchitecture());
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadHeads());
    RETURN_IF_ERROR(ReadWindows());
    RETURN_IF_ERROR(ReadRope());
    RETURN_IF_ERROR(ReadScales());
    RETURN_IF_ERROR(ReadHead());
    RETURN_IF_ERROR(ReadBiases());
    RETURN_IF_ERROR(CheckNeutral());
    RETURN_IF_ERROR(ReadEnds());
    return std::move(model_);
  }

 private:
  const GgufForm& gguf() const { return family_->gguf; }
  std::string Key(absl::string_view key) const {
    return absl::StrCat(gguf().architecture, ".", key);
  }
  bool Has(absl::string_view key) const { return file_.Has(Key(key)); }
  absl::Status Wrong(absl::string_view key, absl::string_view found,
                     absl::string_view allowed) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": key ", Quoted(key), ": found ",
                                                   found, ", allowed: ", allowed));
  }
  // An integer from 1; `if_absent` where there is none, or an error without one.
  absl::StatusOr<int> Int(absl::string_view key, int most,
                          std::optional<int> if_absent = std::nullopt) const {
    if (if_absent.has_value() && !Has(key)) return *if_absent;
    ASSIGN_OR_RETURN(const int64_t value, file_.GetInteger(Key(key), 1, most));
    return static_cast<int>(value);
  }
  absl::StatusOr<double> Number(absl::string_view key, double least, double most) const {
    ASSIGN_OR_RETURN(const double value, file_.GetNumber(Key(key)));
    if (value >= least && value <= most) return value;
    return Wrong(Key(key), absl::StrCat(value),
                 absl::StrCat("a number from ", least, " to ", most));
  }
  // Null if there is none.
  const GgufTensor* Tensor(absl::string_view name) const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }

  absl::Status ReadArchitecture() {
    ASSIGN_OR_RETURN(family_, GgufFamilyOf(file_));
    model_ = family_->NewConfig();
    return absl::OkStatus();
  }

  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(model_.num_layers, Int("block_count", kMaxLayers));
    ASSIGN_OR_RETURN(model_.hidden_size, Int("embedding_length", kMaxHidden));
    ASSIGN_OR_RETURN(model_.intermediate_size, Int("feed_forward_length", kMaxHidden));
    ASSIGN_OR_RETURN(model_.context_length, Int("context_length", kMaxContext));
    ASSIGN_OR_RETURN(const double epsilon,
                     Number(model_.norm_form == NormForm::kRms ? "attention.layer_norm_rms_epsilon"
                                                               : "attention.layer_norm_epsilon",
                            kLeastEpsilon, 1.0));
    model_.rms_norm_epsilon = static_cast<float>(epsilon);
    const GgufTensor* const embedding = Tensor("token_embd.weight");
    if (embedding == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(file_.path(), ": tensor \"token_embd.weight\": not found"));
    }
    if (embedding->shape.size() != 2 || embedding->shape[0] > kMaxVocab) {
      return absl::InvalidArgumentError(
          absl::StrCat(*embedding->path, ": tensor \"token_embd.weight\": shape: found ",
                       ShapeText(embedding->shape), ", allowed: [at most ", kMaxVocab, ", ",
                       model_.hidden_size, "]"));
    }
    model_.vocab_size = static_cast<int>(embedding->shape[0]);
    return absl::OkStatus();
  }

  absl::Status ReadHeads() {
    ASSIGN_OR_RETURN(model_.num_heads, Int("attention.head_count", kMaxHeads));
    ASSIGN_OR_RETURN(model_.num_kv_heads,
                     Int("attention.head_count_kv", kMaxHeads, model_.num_heads));
    if (model_.num_heads % model_.num_kv_heads != 0) {
      return Wrong(
          Key("attention.head_count_kv"), absl::StrCat(model_.num_kv_heads),
          absl::StrCat("a divisor of the ", model_.num_heads, " of ", Key("attention.head_count")));
    }
    if (!Has("attention.key_length") && model_.hidden_size % model_.num_heads != 0) {
      return Wrong(
          Key("attention.key_length"), "nothing",
          absl::StrCat("an even integer, as ", Key("embedding_length"), " ", model_.hidden_size,
                       " is no multiple of ", model_.num_heads, " heads"));
    }
    const int even_share = model_.hidden_size / model_.num_heads;
    ASSIGN_OR_RETURN(model_.head_dim, Int("attention.key_length", kMaxHeadDim, even_share));
    if (model_.head_dim % 2 != 0 || model_.head_dim > kMaxHeadDim || model_.head_dim == 0) {
      return Wrong(Key("attention.key_length"), absl::StrCat(model_.head_dim),
                   absl::StrCat("an even integer from 2 to ", kMaxHeadDim));
    }
    if (gguf().heads_fill_rows && model_.head_dim != even_share) {
      return Wrong(Key("attention.key_length"), absl::StrCat(model_.head_dim),
                   absl::StrCat(even_share, ", so that the heads fill ", Key("embedding_length"),
                                " ", model_.hidden_size));
    }
    ASSIGN_OR_RETURN(const int value_length,
                     Int("attention.value_length", kMaxHeadDim, even_share));
    if (value_length != model_.head_dim) {
      return Wrong(Key("attention.value_length"), absl::StrCat(value_length),
                   absl::StrCat(model_.head_dim, ", the length of a key"));
    }
    return absl::OkStatus();
  }

  // Which layers slide, and which turn queries and keys by what.
  absl::Status ReadWindows() {
    constexpr char kKey[] = "attention.sliding_window";
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    model_.windows.assign(model_.num_layers, 0);
    model_.rotations.resize(model_.num_layers);
    const bool has_pattern = family_->window_rule == WindowRule::kPattern;
    int window = gguf().window;
    // Elsewhere the key means nothing: some converters write it even for models that do not use it.
    const bool is_read = has_pattern || family_->window_rule == WindowRule::kEveryLayer;
    if (is_read && (Has(kKey) || window < 0)) {
      const int least = window == 0 ? 0 : 1;
      ASSIGN_OR_RETURN(const int64_t found, file_.GetInteger(Key(kKey), least, kMaxContext));
      window = static_cast<int>(found);
    }
    std::vector<bool> slides(model_.num_layers, true);
    if (has_pattern) {
      ASSIGN_OR_RETURN(slides, ReadPattern(kPattern));
    }
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      if (slides[layer]) model_.windows[layer] = window;
      model_.rotations[layer] = RotationOf(layer);
    }
    return absl::OkStatus();
  }

  // [num_layers]: of a list, or of a number n, all but each n-th.
  absl::StatusOr<std::vector<bool>> ReadPattern(const char* key) const {
    std::vector<bool> slides(model_.num_layers);
    if (file_.IsArray(Key(key))) {
      ASSIGN_OR_RETURN(const std::vector<bool> list, file_.GetBools(Key(key)));
      if (list.size() == slides.size()) return list;
      return Wrong(Key(key), absl::StrCat(list.size(), " elements"),
                   absl::StrCat("one for each of the ", slides.size(), " layers"));
    }
    int64_t pattern = family_->window_pattern;
    if (Has(key)) {
      ASSIGN_OR_RETURN(pattern, file_.GetInteger(Key(key), 0, kMaxLayers));
    }
    for (size_t layer = 0; layer < slides.size(); ++layer) {
      slides[layer] = pattern == 0 || (static_cast<int64_t>(layer) + 1) % pattern != 0;
    }
    return slides;
  }

  LayerRotation RotationOf(int layer) const {
    constexpr int kUnturned = 4;  // each such layer, where a list would say so
    const bool slides = model_.windows[layer] > 0;
    switch (family_->rotation_rule) {
      case RotationRule::kEveryLayer:
        break;
      case RotationRule::kLocalWindows:
        return slides ? LayerRotation::kLocal : LayerRotation::kMain;
      case RotationRule::kOnlyWindows:
        return slides ? LayerRotation::kMain : LayerRotation::kNone;
      case RotationRule::kListedLayers:
        return (layer + 1) % kUnturned != 0 ? LayerRotation::kMain : LayerRotation::kNone;
    }
    return LayerRotation::kMain;
  }

  absl::Status ReadRope() {
    RopeConfig& rope = model_.rope;
    constexpr char kBase[] = "rope.freq_base";
    constexpr char kLocalBase[] = "rope.freq_base_swa";
    if (Has(kBase)) {
      ASSIGN_OR_RETURN(rope.theta, Number(kBase, 1, kMaxTheta));
    }
    if (Has(kLocalBase)) {
      ASSIGN_OR_RETURN(const double theta, Number(kLocalBase, 1, kMaxTheta));
      const bool has_local = family_->rotation_rule == RotationRule::kLocalWindows;
      if (has_local) model_.local_rope.theta = theta;
      if (!has_local && family_->window_rule == WindowRule::kPattern && theta != rope.theta) {
        return Wrong(Key(kLocalBase), absl::StrCat(theta),
                     absl::StrCat(rope.theta, ", as ", Key(kBase), " says"));
      }
    }
    RETURN_IF_ERROR(ReadRotaryDim());
    RETURN_IF_ERROR(ReadScaling());
    return ReadDivisors();
  }

  absl::Status ReadRotaryDim() {
    constexpr char kKey[] = "rope.dimension_count";
    ASSIGN_OR_RETURN(model_.rotary_dim, Int(kKey, kMaxHeadDim, model_.head_dim));
    const bool may_be_partial = family_->partial_rotary > 0.0;
    if (!may_be_partial && model_.rotary_dim != model_.head_dim) {
      return Wrong(Key(kKey), absl::StrCat(model_.rotary_dim),
                   absl::StrCat(model_.head_dim, ", the whole of a head"));
    }
    if (model_.rotary_dim % 2 != 0 || model_.rotary_dim > model_.head_dim) {
      return Wrong(Key(kKey), absl::StrCat(model_.rotary_dim),
                   absl::StrCat("an even integer up to ", model_.head_dim, ", a whole head"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadScaling() {
    RopeConfig& rope = model_.rope;
    constexpr char kType[] = "rope.scaling.type";
    constexpr char kMagnitude[] = "rope.scaling.attn_factor";
    std::string_view type = "linear";  // where only a factor is given, or nothing
    if (Has(kType)) {
      ASSIGN_OR_RETURN(type, file_.GetString(Key(kType)));
    }
    double factor = 1.0;
    // The second is the name that the key had in the format's first year.
    for (const char* const key : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (!Has(key)) continue;
      ASSIGN_OR_RETURN(factor, Number(key, 0, kMaxRopeFactor));
      if (factor == 0) factor = 1.0;  // as in the reference
      break;
    }
    if (Has(kMagnitude)) {
      ASSIGN_OR_RETURN(rope.magnitude, Number(kMagnitude, kLeastMultiplier, kMostMultiplier));
      model_.local_rope.magnitude = rope.magnitude;
    }
    const bool takes_factors = gguf().extras != GgufExtras::kNone;
    if (type == "none") return absl::OkStatus();
    if (type == "linear") {
      if (factor != 1.0) rope.type = RopeConfig::Type::kLinear;
      rope.factor = factor;
      return absl::OkStatus();
    }
    if (type == "yarn") return ReadYarn(factor);
    if (type != "longrope" || !takes_factors) {
      return Wrong(Key(kType), Quoted(View(type)),
                   absl::StrCat("none, linear, yarn", takes_factors ? ", longrope" : ""));
    }
    rope.type = RopeConfig::Type::kLongRope;
    if (factor == 1.0) return absl::OkStatus();
    return Wrong(Key("rope.scaling.factor"), absl::StrCat(factor), "nothing with longrope");
  }

  absl::StatusOr<int> ReadOriginalContext() const {
    return Int("rope.scaling.original_context_length", kMaxContext, model_.context_length);
  }

  // The reference derives what cosines and sines are multiplied with from the factor, and takes no
  // notice of yarn_attn_factor; that may repeat it.
  absl::Status ReadYarn(double factor) {
    RopeConfig& rope = model_.rope;
    constexpr char kBase[] = "rope.freq_base";
    constexpr char kFactor[] = "rope.scaling.factor";
    constexpr char kOwn[] = "rope.scaling.yarn_attn_factor";
    rope.type = RopeConfig::Type::kYarn;
    rope.factor = factor;
    if (rope.theta <= 1.0) return Wrong(Key(kBase), absl::StrCat(rope.theta), "more than 1");
    if (factor < 1.0) return Wrong(Key(kFactor), absl::StrCat(factor), "at least 1 with yarn");
    ASSIGN_OR_RETURN(rope.original_context, ReadOriginalContext());
    const double derived = 0.1 * std::log(factor) + 1.0;
    if (Has(kOwn)) {
      ASSIGN_OR_RETURN(const double own, Number(kOwn, 0, kMostMultiplier));
      if (own != 1.0 && std::abs(own - derived) > 1e-6) {
        return Wrong(Key(kOwn), absl::StrCat(own), absl::StrCat("1, or ", derived, " as derived"));
      }
    }
    rope.magnitude *= derived;
    const double context = factor * rope.original_context;
    if (context > kMaxContext) {
      return Wrong(Key(kFactor), absl::StrCat(factor),
                   absl::StrCat("at most ", kMaxContext, " positions in all"));
    }
    model_.context_length = static_cast<int>(context);
    return absl::OkStatus();
  }

  // The tensors that divide angles.
  absl::Status ReadDivisors() {
    RopeConfig& rope = model_.rope;
    const bool is_longrope = rope.type == RopeConfig::Type::kLongRope;
    const bool wants_freqs = gguf().extras == GgufExtras::kLlamas && !is_longrope;
    ASSIGN_OR_RETURN(rope.divisors, ReadDivisors(kGgufDivisors, wants_freqs));
    const bool may_have_factors = is_longrope || (gguf().extras == GgufExtras::kRopeFactors &&
                                                  rope.type == RopeConfig::Type::kDefault);
    ASSIGN_OR_RETURN(rope.long_divisors, ReadDivisors(kGgufLongDivisors, may_have_factors));
    ASSIGN_OR_RETURN(rope.short_divisors, ReadDivisors(kGgufShortDivisors, may_have_factors));
    if (rope.long_divisors.empty() && rope.short_divisors.empty() && !is_longrope) {
      return absl::OkStatus();
    }
    for (const char* const name : {kGgufLongDivisors, kGgufShortDivisors}) {
      if (Tensor(name) == nullptr) {
        return absl::NotFoundError(
            absl::StrCat(file_.path(), ": tensor ", Quoted(name), ": not found"));
      }
    }
    rope.type = RopeConfig::Type::kLongRope;
    ASSIGN_OR_RETURN(rope.original_context, ReadOriginalContext());
    return absl::OkStatus();
  }

  // [rotary_dim / 2], or none if there is no such tensor.
  absl::StatusOr<std::vector<float>> ReadDivisors(const char* name, bool is_allowed) const {
    std::vector<float> divisors;
    const GgufTensor* const tensor = Tensor(name);
    if (tensor == nullptr) return divisors;
    const auto wrong = [&](absl::string_view found, absl::string_view allowed) {
      return absl::InvalidArgumentError(absl::StrCat(*tensor->path, ": tensor ",
                                                     Quoted(tensor->name), ": found ", found,
                                                     ", allowed: ", allowed));
    };
    if (!is_allowed) {
      return wrong("it", absl::StrCat("nothing in a ", gguf().architecture,
                                      " model with this rope.scaling.type"));
    }
    const int size = model_.rotary_dim / 2;
    if (tensor->shape.size() != 1 || tensor->shape[0] != size) {
      return wrong(absl::StrCat("shape ", ShapeText(tensor->shape)),
                   absl::StrCat("[", size, "], half of what is turned of a head"));
    }
    if (tensor->dtype != DType::kF32) return wrong(NameOf(tensor->dtype), "float32");
    divisors.resize(size);
    std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const float divisor : divisors) {
      if (!(divisor > 0) || !std::isfinite(divisor)) {
        return wrong(absl::StrCat(divisor), "finite numbers above 0");
      }
    }
    return divisors;
  }

  // A multiplier that is `if_absent` where there is none or, as in the reference, 0. Of families
  // that do not have it, `is_own` false, it is that or an error.
  absl::StatusOr<float> Scale(const char* key, bool is_own, double if_absent) const {
    if (!Has(key)) return static_cast<float>(if_absent);
    ASSIGN_OR_RETURN(const double value,
                     Number(key, is_own ? 0 : -kMostMultiplier, kMostMultiplier));
    if (is_own) return static_cast<float>(value == 0 ? if_absent : value);
    if (value == 0 || static_cast<float>(value) == static_cast<float>(if_absent)) {
      return static_cast<float>(if_absent);
    }
    return WouldChange(key, value, absl::StrCat(if_absent));
  }

  absl::Status ReadScales() {
    const bool is_granite = family_->Reads("residual_multiplier");
    ASSIGN_OR_RETURN(model_.embedding_scale, Scale("embedding_scale", is_granite, 1));
    if (family_->scales_embeddings_by_root) {
      model_.embedding_scale = std::sqrt(static_cast<float>(model_.hidden_size));
    }
    ASSIGN_OR_RETURN(model_.residual_scale, Scale("residual_scale", is_granite, 1));
    const bool has_other_scale = model_.num_layers == gguf().layers_of_other_scale;
    const int scale_dim = has_other_scale ? model_.hidden_size / model_.num_heads : model_.head_dim;
    const float derived = 1.0f / std::sqrt(static_cast<float>(scale_dim));
    ASSIGN_OR_RETURN(model_.attention_scale, Scale("attention.scale", is_granite, derived));
    // What logits are multiplied with, or divided by: where it counts it must be there.
    const bool is_divisor = family_->Reads("logits_scaling");
    const bool is_factor = family_->Reads("logit_scale");
    ASSIGN_OR_RETURN(model_.logits_scale, Scale("logit_scale", is_divisor || is_factor, 1));
    if (is_divisor || is_factor) {
      const double least = is_divisor ? kLeastMultiplier : 0;
      RETURN_IF_ERROR(Number("logit_scale", least, kMostMultiplier).status());
    }
    if (is_divisor) model_.logits_scale = 1.0f / model_.logits_scale;
    const ModelFamily::Defaults& defaults = family_->defaults;
    ASSIGN_OR_RETURN(model_.attention_soft_cap,
                     SoftCap("attn_logit_softcapping", defaults.attention_soft_cap > 0,
                             defaults.attention_soft_cap));
    ASSIGN_OR_RETURN(model_.logits_soft_cap,
                     SoftCap("final_logit_softcapping", family_->Reads("final_logit_softcapping"),
                             defaults.logits_soft_cap));
    return absl::OkStatus();
  }

  // 0 for none, which a family that has one where the key is absent cannot do without.
  absl::StatusOr<float> SoftCap(const char* key, bool is_own, double if_absent) const {
    if (!Has(key)) return static_cast<float>(if_absent);
    ASSIGN_OR_RETURN(const double value,
                     Number(key, if_absent > 0 ? kLeastMultiplier : 0, kMostMultiplier));
    if (!is_own && value != 0) return WouldChange(key, value, "0");
    return static_cast<float>(value);
  }

  // The embedding may be the head.
  absl::Status ReadHead() {
    constexpr char kHead[] = "output.weight";
    const GgufTensor* const head = Tensor(kHead);
    model_.tied_embeddings = head == nullptr;
    if (head == nullptr && gguf().head == GgufHead::kOwn) {
      return absl::NotFoundError(
          absl::StrCat(file_.path(), ": tensor ", Quoted(kHead), ": not found"));
    }
    if (head != nullptr && gguf().head == GgufHead::kTied) return HasNoPlace(*head);
    return absl::OkStatus();
  }

  absl::Status ReadBiases() {
    const GgufTensor* const output = Tensor("blk.0.attn_output.bias");
    const GgufTensor* const mlp = Tensor("blk.0.ffn_gate.bias");
    model_.qkv_bias =
        Tensor("blk.0.attn_q.bias") != nullptr || Tensor("blk.0.attn_qkv.bias") != nullptr;
    model_.output_bias = output != nullptr;
    model_.mlp_bias = mlp != nullptr;
    for (const GgufTensor* const bias : {output, mlp}) {
      if (bias != nullptr && gguf().extras != GgufExtras::kLlamas) return HasNoPlace(*bias);
    }
    return absl::OkStatus();
  }

  absl::Status HasNoPlace(const GgufTensor& tensor) const {
    return absl::InvalidArgumentError(absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name),
                                                   ": found it, allowed: nothing in a ",
                                                   gguf().architecture, " model"));
  }
  absl::Status WouldChange(absl::string_view key, double found, absl::string_view allowed) const {
    return Wrong(Key(key), absl::StrCat(found),
                 absl::StrCat(allowed, " (not implemented, and it would change the result)"));
  }

  absl::Status CheckNeutral() const {
    for (const auto& [key, neutral, family] : kNeutral) {
      if (!Has(key) || (!family.empty() && family != model_.family)) continue;
      if (!neutral.has_value()) return Wrong(Key(key), "it", "nothing");
      ASSIGN_OR_RETURN(const double value, file_.GetNumber(Key(key)));
      if (value != *neutral) return WouldChange(key, value, absl::StrCat(*neutral));
    }
    for (const char* const key : {"attention.causal", "rope.scaling.finetuned"}) {
      // The second says of a granite model whether it turns queries and keys at all.
      if (!Has(key) ||
          (absl::string_view(key) != "attention.causal" && model_.family != "granite")) {
        continue;
      }
      ASSIGN_OR_RETURN(const bool value, file_.GetBool(Key(key)));
      if (!value) return Wrong(Key(key), "false", "true");
    }
    return absl::OkStatus();
  }

  absl::Status ReadEnds() {
    for (const std::string_view key : kEndKeys) {
      if (!file_.Has(key)) continue;
      ASSIGN_OR_RETURN(const TokenId id, file_.GetInteger(key, 0, model_.vocab_size - 1));
      AddEnd(id);
    }
    return file_.Has(kTurnKey) || !file_.Has(kTokens) ? absl::OkStatus() : FindTurnEnds();
  }

  absl::Status FindTurnEnds() {
    ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file_.GetStrings(kTokens));
    const auto size = std::min<int64_t>(static_cast<int64_t>(tokens.size()), model_.vocab_size);
    for (TokenId id = 0; id < size; ++id) {
      if (absl::c_linear_search(kTurnEnds, tokens[id])) AddEnd(id);
    }
    return absl::OkStatus();
  }

  void AddEnd(TokenId id) {
    if (!absl::c_linear_search(model_.eos_token_ids, id)) model_.eos_token_ids.push_back(id);
  }

  const GgufFile& file_;
  const ModelFamily* family_ = nullptr;
  ModelConfig model_;
};

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  return ConfigReader(file).Read();
}

absl::StatusOr<const ModelFamily*> GgufFamilyOf(const GgufFile& file) {
  constexpr char kKey[] = "general.architecture";
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString(kKey));
  const ModelFamily* const found = FamilyOfGguf(View(name));
  if (found != nullptr) return found;
  std::vector<absl::string_view> allowed;
  for (const ModelFamily& family : ModelFamilies()) {
    const char* const architecture = family.gguf.architecture;
    if (architecture != nullptr && !absl::c_linear_search(allowed, architecture)) {
      allowed.emplace_back(architecture);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": key ", Quoted(kKey), ": found ",
                                                 Quoted(View(name)),
                                                 ", allowed: ", absl::StrJoin(allowed, ", ")));
}

}  // namespace tandem
