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

namespace tandem {
namespace {

struct Architecture {
  absl::string_view name;  // and of the family
  QueryKeyNorm query_key_norm;
  bool has_neighbour_rows;
};
constexpr Architecture kArchitectures[] = {{"llama", QueryKeyNorm::kNone, true},
                                           {"qwen2", QueryKeyNorm::kNone, false},
                                           {"qwen3", QueryKeyNorm::kEachHead, false}};

// Keys of an architecture that change the result unless they have this value. Some of them
// llama.cpp reads for other architectures only; there is nobody who would write them in vain.
constexpr struct {
  absl::string_view key;
  double neutral;
} kNeutral[] = {{"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attn_logit_softcapping", 0},
                {"embedding_scale", 1},
                {"expert_count", 0},
                {"expert_used_count", 0},
                {"final_logit_softcapping", 0},
                {"logit_scale", 1},
                {"nextn_predict_layers", 0},
                {"residual_scale", 1},
                {"rope.scaling.attn_factor", 1},
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
    RETURN_IF_ERROR(ReadRope());
    RETURN_IF_ERROR(ReadDivisors());
    RETURN_IF_ERROR(CheckNeutral());
    model_.windows.assign(model_.num_layers, 0);
    model_.rotations.assign(model_.num_layers, LayerRotation::kMain);
    model_.rotary_dim = model_.head_dim;
    model_.attention_scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim));
    model_.tied_embeddings = Tensor("output.weight") == nullptr;
    model_.qkv_bias = Tensor("blk.0.attn_q.bias") != nullptr;
    model_.output_bias = Tensor("blk.0.attn_output.bias") != nullptr;
    model_.mlp_bias = Tensor("blk.0.ffn_gate.bias") != nullptr;
    RETURN_IF_ERROR(ReadEnds());
    return std::move(model_);
  }

 private:
  std::string Key(absl::string_view key) const { return absl::StrCat(model_.family, ".", key); }
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
    constexpr char kKey[] = "general.architecture";
    ASSIGN_OR_RETURN(const std::string_view name, file_.GetString(kKey));
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.name != View(name)) continue;
      model_.family = std::string(name);
      model_.query_key_norm = architecture.query_key_norm;
      return absl::OkStatus();
    }
    return Wrong(
        kKey, Quoted(View(name)),
        absl::StrJoin(kArchitectures, ", ", [](std::string* out, const Architecture& architecture) {
          absl::StrAppend(out, architecture.name);
        }));
  }

  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(model_.num_layers, Int("block_count", kMaxLayers));
    ASSIGN_OR_RETURN(model_.hidden_size, Int("embedding_length", kMaxHidden));
    ASSIGN_OR_RETURN(model_.intermediate_size, Int("feed_forward_length", kMaxHidden));
    ASSIGN_OR_RETURN(model_.context_length, Int("context_length", kMaxContext));
    ASSIGN_OR_RETURN(const double epsilon,
                     Number("attention.layer_norm_rms_epsilon", kLeastEpsilon, 1.0));
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
    ASSIGN_OR_RETURN(const int value_length,
                     Int("attention.value_length", kMaxHeadDim, even_share));
    if (value_length != model_.head_dim) {
      return Wrong(Key("attention.value_length"), absl::StrCat(value_length),
                   absl::StrCat(model_.head_dim, ", the length of a key"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRope() {
    RopeConfig& rope = model_.rope;
    if (Has("rope.freq_base")) {
      ASSIGN_OR_RETURN(rope.theta, Number("rope.freq_base", 1, kMaxTheta));
    }
    ASSIGN_OR_RETURN(const int turned, Int("rope.dimension_count", kMaxHeadDim, model_.head_dim));
    if (turned != model_.head_dim) {
      return Wrong(Key("rope.dimension_count"), absl::StrCat(turned),
                   absl::StrCat(model_.head_dim, ", the whole of a head"));
    }
    std::string_view type = "linear";  // where only a factor is given, or nothing
    if (Has("rope.scaling.type")) {
      ASSIGN_OR_RETURN(type, file_.GetString(Key("rope.scaling.type")));
    }
    if (type == "none") return absl::OkStatus();
    if (type != "linear")
      return Wrong(Key("rope.scaling.type"), Quoted(View(type)), "none, linear");
    // The second is the name that the key had in the format's first year.
    for (const char* const key : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (!Has(key)) continue;
      ASSIGN_OR_RETURN(const double factor, Number(key, 0, kMaxRopeFactor));
      if (factor != 0 && factor != 1) {  // 0 is none
        rope.type = RopeConfig::Type::kLinear;
        rope.factor = factor;
      }
      break;
    }
    return absl::OkStatus();
  }

  absl::Status ReadDivisors() {
    const GgufTensor* const tensor = Tensor("rope_freqs.weight");
    if (tensor == nullptr) return absl::OkStatus();
    const auto wrong = [&](absl::string_view found, absl::string_view allowed) {
      return absl::InvalidArgumentError(absl::StrCat(*tensor->path, ": tensor ",
                                                     Quoted(tensor->name), ": found ", found,
                                                     ", allowed: ", allowed));
    };
    const int size = model_.head_dim / 2;
    if (tensor->shape.size() != 1 || tensor->shape[0] != size) {
      return wrong(absl::StrCat("shape ", ShapeText(tensor->shape)),
                   absl::StrCat("[", size, "], half of a head"));
    }
    if (tensor->dtype != DType::kF32) return wrong(NameOf(tensor->dtype), "float32");
    std::vector<float>& divisors = model_.rope.divisors;
    divisors.resize(size);
    std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const float divisor : divisors) {
      if (!(divisor > 0) || !std::isfinite(divisor)) {
        return wrong(absl::StrCat(divisor), "finite numbers above 0");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNeutral() const {
    for (const auto& [key, neutral] : kNeutral) {
      if (!Has(key)) continue;
      ASSIGN_OR_RETURN(const double value, file_.GetNumber(Key(key)));
      if (value == neutral) continue;
      return Wrong(Key(key), absl::StrCat(value),
                   absl::StrCat(neutral, " (not implemented, and it would change the result)"));
    }
    if (!Has("attention.causal")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool causal, file_.GetBool(Key("attention.causal")));
    return causal ? absl::OkStatus() : Wrong(Key("attention.causal"), "false", "true");
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
  ModelConfig model_;
};

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  return ConfigReader(file).Read();
}

bool HasNeighbourRows(const ModelConfig& gguf_config) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == gguf_config.family) return architecture.has_neighbour_rows;
  }
  return false;
}

}  // namespace tandem
