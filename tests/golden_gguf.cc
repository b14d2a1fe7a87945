#include "tests/golden_gguf.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "kernels/blocks.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;

struct FloatTensor {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// Adds the tensors of a safetensors file by name.
void ReadFloatTensors(const std::string& path, std::map<std::string, FloatTensor>* tensors) {
  const std::string file = *ReadFile(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const Json header = Json::parse(file.substr(8, header_size));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    FloatTensor& tensor = (*tensors)[name];
    tensor.shape = entry.at("shape").get<std::vector<uint64_t>>();
    uint64_t count = 1;
    for (const uint64_t size : tensor.shape) count *= size;
    const std::string dtype = entry.at("dtype");
    const DType kind = dtype == "F32" ? DType::kF32 : dtype == "F16" ? DType::kF16 : DType::kBF16;
    tensor.values.resize(count);
    const uint64_t begin = entry.at("data_offsets")[0];
    WidenRow(file.data() + 8 + header_size + begin, kind, static_cast<int>(count),
             tensor.values.data());
  }
}

class GoldenConverter {
 public:
  GoldenConverter(const std::string& folder, GoldenExperts experts)
      : config_(Json::parse(*ReadFile(folder + "/config.json"))), experts_(experts) {
    if (config_.contains("text_config")) {
      Json text = config_.at("text_config");
      if (config_.contains("tie_word_embeddings")) {
        text["tie_word_embeddings"] = config_.at("tie_word_embeddings");
      }
      config_ = std::move(text);
    }
    const std::string type = config_.at("model_type");
    architecture_ = type == "mistral" || type == "mixtral" ? "llama"
                    : type == "gemma3_text"                ? "gemma3"
                    : type == "qwen3_moe"                  ? "qwen3moe"
                                                           : type;
    num_heads_ = config_.at("num_attention_heads");
    num_kv_heads_ = Or("num_key_value_heads", num_heads_);
    head_dim_ = Or("head_dim", config_.at("hidden_size").get<uint32_t>() / num_heads_);
  }

  GgufBuilder Convert(const std::map<std::string, FloatTensor>& tensors) {
    AddKeys();
    for (const auto& [name, tensor] : tensors) AddTensor(name, tensor);
    for (const auto& [name, parts] : stacks_) AddStack(name, parts);
    return std::move(file_);
  }

 private:
  bool Is(absl::string_view architecture) const { return architecture_ == architecture; }
  bool IsGemma() const { return Is("gemma2") || Is("gemma3"); }
  template <typename Value>
  Value Or(const char* key, Value if_absent) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? if_absent : found->get<Value>();
  }
  void Set(const std::string& key, const std::string& value) {
    file_.Set(absl::StrCat(architecture_, ".", key), value);
  }
  void SetInt(const std::string& key, const char* from) {
    Set(key, GgufUint32(config_.at(from).get<uint32_t>()));
  }
  void SetFloat(const std::string& key, const char* from) {
    Set(key, GgufFloat32(config_.at(from).get<float>()));
  }

  void AddKeys() {
    file_.Set("general.architecture", GgufString(architecture_));
    SetInt("vocab_size", "vocab_size");
    SetInt("context_length", "max_position_embeddings");
    SetInt("embedding_length", "hidden_size");
    SetInt("block_count", "num_hidden_layers");
    SetInt("feed_forward_length", "intermediate_size");
    Set("attention.head_count", GgufUint32(num_heads_));
    Set("attention.head_count_kv", GgufUint32(num_kv_heads_));
    if (!Is("phi3")) {
      Set("attention.key_length", GgufUint32(head_dim_));
      Set("attention.value_length", GgufUint32(head_dim_));
    }
    if (Is("cohere2")) {
      SetFloat("attention.layer_norm_epsilon", "layer_norm_eps");
      SetFloat("logit_scale", "logit_scale");
      SetInt("attention.sliding_window", "sliding_window");
      Set("rope.scaling.type", GgufString("none"));
    } else {
      SetFloat("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    }
    const uint32_t num_experts = Or("num_local_experts", Or("num_experts", 0u));
    if (num_experts > 0) {
      Set("expert_count", GgufUint32(num_experts));
      SetInt("expert_used_count", "num_experts_per_tok");
    }
    if (Is("qwen3moe")) SetInt("expert_feed_forward_length", "moe_intermediate_size");
    if (Is("gemma2")) {
      SetFloat("attn_logit_softcapping", "attn_logit_softcapping");
      SetFloat("final_logit_softcapping", "final_logit_softcapping");
      SetInt("attention.sliding_window", "sliding_window");
    }
    if (Is("gemma3")) {
      SetInt("attention.sliding_window", "sliding_window");
      SetInt("attention.sliding_window_pattern", "sliding_window_pattern");
    }
    if (Is("granite")) {
      SetFloat("attention.scale", "attention_multiplier");
      SetFloat("embedding_scale", "embedding_multiplier");
      SetFloat("residual_scale", "residual_multiplier");
      SetFloat("logit_scale", "logits_scaling");
    }
    if (Is("phi3")) SetInt("attention.sliding_window", "sliding_window");
    AddRope();
    file_.Set("tokenizer.ggml.model", GgufString("no_vocab"));
  }

  void AddRope() {
    Set("rope.freq_base", GgufFloat32(Or("rope_theta", 10000.0f)));
    const auto turned = static_cast<uint32_t>(
        Or("partial_rotary_factor", 1.0) * config_.at("hidden_size").get<uint32_t>() / num_heads_);
    if (Is("phi3")) Set("rope.dimension_count", GgufUint32(turned));
    if (Is("glm4")) Set("rope.dimension_count", GgufUint32(head_dim_ / 2));
    const Json scaling = Or("rope_scaling", Json::object());
    const std::string type = scaling.value("rope_type", scaling.value("type", ""));
    if (type == "linear" || type == "yarn") {
      Set("rope.scaling.type", GgufString(type));
      Set("rope.scaling.factor", GgufFloat32(scaling.at("factor")));
    }
    if (type == "yarn") {
      Set("rope.scaling.original_context_length",
          GgufUint32(scaling.at("original_max_position_embeddings").get<uint32_t>()));
    }
    if (type == "llama3") AddLlama3Divisors(scaling);
    if (type == "longrope") AddLongRope(scaling);
  }

  void AddLongRope(const Json& scaling) {
    const uint32_t original = scaling.value("original_max_position_embeddings",
                                            Or("original_max_position_embeddings", 0u));
    const double stretch =
        scaling.value("factor", config_.at("max_position_embeddings").get<double>() / original);
    if (!Is("phi3")) Set("rope.scaling.type", GgufString("longrope"));
    Set("rope.scaling.original_context_length", GgufUint32(original));
    Set("rope.scaling.attn_factor",
        GgufFloat32(static_cast<float>(std::sqrt(1 + std::log(stretch) / std::log(original)))));
    for (const char* const which : {"long", "short"}) {
      const auto factors = scaling.at(absl::StrCat(which, "_factor")).get<std::vector<float>>();
      file_.AddFloats(absl::StrCat("rope_factors_", which, ".weight"), {factors.size()}, factors);
    }
  }

  void AddLlama3Divisors(const Json& scaling) {
    const double theta = Or("rope_theta", 10000.0);
    const double factor = scaling.at("factor");
    const double low = scaling.at("low_freq_factor");
    const double high = scaling.at("high_freq_factor");
    const double original = scaling.at("original_max_position_embeddings");
    std::vector<float> divisors;
    for (uint32_t i = 0; i < head_dim_; i += 2) {
      const double wavelength = 2 * M_PI * std::pow(theta, static_cast<double>(i) / head_dim_);
      const double smooth = (original / wavelength - low) / (high - low);
      divisors.push_back(static_cast<float>(wavelength < original / high ? 1.0
                                            : wavelength > original / low
                                                ? factor
                                                : 1 / ((1 - smooth) / factor + smooth)));
    }
    file_.AddFloats("rope_freqs.weight", {divisors.size()}, divisors);
  }

  // Returns the name of a tensor in a GGUF file; empty for tensors that such files do not contain.
  std::string NameOf(std::string name) const {
    if (absl::StrContains(name, "vision") || absl::StrContains(name, "projector")) return "";
    name = absl::StrReplaceAll(name, {{"language_model.model.", "model."},
                                      {"model.language_model.", "model."},
                                      {"language_model.lm_head", "lm_head"}});
    if (IsGemma() && name == "lm_head.weight") return "";
    const bool has_four_norms = IsGemma();
    const char* const after_attention =
        has_four_norms || Is("olmo2") ? "post_attention_norm" : "ffn_norm";
    return absl::StrReplaceAll(name, {{"model.embed_tokens", "token_embd"},
                                      {"model.norm", "output_norm"},
                                      {"lm_head", "output"},
                                      {"model.layers.", "blk."},
                                      {"self_attn.q_proj", "attn_q"},
                                      {"self_attn.k_proj", "attn_k"},
                                      {"self_attn.v_proj", "attn_v"},
                                      {"self_attn.qkv_proj", "attn_qkv"},
                                      {"self_attn.o_proj", "attn_output"},
                                      {"self_attn.q_norm", "attn_q_norm"},
                                      {"self_attn.k_norm", "attn_k_norm"},
                                      {"block_sparse_moe.gate", "ffn_gate_inp"},
                                      {"mlp.gate.", "ffn_gate_inp."},
                                      {"mlp.gate_up_proj", "ffn_up"},
                                      {"mlp.gate_proj", "ffn_gate"},
                                      {"mlp.up_proj", "ffn_up"},
                                      {"mlp.down_proj", "ffn_down"},
                                      {"input_layernorm", "attn_norm"},
                                      {"post_attention_layernorm", after_attention},
                                      {"pre_feedforward_layernorm", "ffn_norm"},
                                      {"post_feedforward_layernorm", "post_ffw_norm"},
                                      {"post_self_attn_layernorm", "post_attention_norm"},
                                      {"post_mlp_layernorm", "post_ffw_norm"}});
  }

  // Adds an expert's tensor. A stored name such as ".experts.7.w1.weight" gives the expert and the
  // place in a layer.
  void AddExpert(const std::string& stored, const FloatTensor& tensor) {
    const std::vector<std::string> parts = absl::StrSplit(stored, '.');
    const std::string& expert = parts[5];
    const std::string& projection = parts[6];
    const std::string place = projection == "w1" || projection == "gate_proj" ? "ffn_gate"
                              : projection == "w3" || projection == "up_proj" ? "ffn_up"
                                                                              : "ffn_down";
    const std::string name = absl::StrCat("blk.", parts[2], ".", place);
    if (experts_ == GoldenExperts::kStacked) {
      stacks_[name + "_exps.weight"][std::stoi(expert)] = tensor;
    } else {
      file_.AddFloats(absl::StrCat(name, ".", expert, ".weight"),
                      {tensor.shape[1], tensor.shape[0]}, tensor.values);
    }
  }

  void AddStack(const std::string& name, const std::map<int, FloatTensor>& parts) {
    const std::vector<uint64_t>& shape = parts.at(0).shape;
    std::vector<float> values;
    for (const auto& [expert, part] : parts) {
      values.insert(values.end(), part.values.begin(), part.values.end());
    }
    file_.AddFloats(name, {shape[1], shape[0], parts.size()}, values);
  }

  void AddTensor(const std::string& stored, FloatTensor tensor) {
    if (absl::StrContains(stored, ".experts.")) return AddExpert(stored, tensor);
    const std::string name = NameOf(stored);
    if (name.empty()) return;
    const bool is_query = absl::StrContains(name, "attn_q.");
    const bool is_key = absl::StrContains(name, "attn_k.");
    if ((is_query || is_key) && (Is("llama") || Is("granite") || Is("smollm3"))) {
      PutPairsTogether(is_query ? num_heads_ : num_kv_heads_, &tensor);
    }
    if (IsGemma() && absl::EndsWith(name, "norm.weight")) {
      for (float& value : tensor.values) value += 1.0f;
    }
    if (absl::StrContains(name, Is("gemma2") ? "attn_q." : "attn_q_norm.") && IsGemma()) {
      const double scale = std::sqrt(head_dim_ / Or("query_pre_attn_scalar", 256.0));
      for (float& value : tensor.values) value = static_cast<float>(value * scale);
    }
    file_.AddFloats(name, {tensor.shape.rbegin(), tensor.shape.rend()}, tensor.values);
  }

  // Rows i and i + d / 2 of a head become 2 i and 2 i + 1.
  static void PutPairsTogether(uint32_t num_heads, FloatTensor* tensor) {
    const std::vector<float> before = tensor->values;
    const uint64_t cols = tensor->shape.size() == 2 ? tensor->shape[1] : 1;
    const uint64_t head = tensor->shape[0] / num_heads;
    for (uint64_t row = 0; row < tensor->shape[0]; ++row) {
      const uint64_t in_head = row % head;
      const uint64_t from = row - in_head + in_head % 2 * (head / 2) + in_head / 2;
      std::copy_n(before.begin() + from * cols, cols, tensor->values.begin() + row * cols);
    }
  }

  Json config_;
  const GoldenExperts experts_;
  std::string architecture_;
  uint32_t num_heads_ = 0;
  uint32_t num_kv_heads_ = 0;
  uint32_t head_dim_ = 0;
  std::map<std::string, std::map<int, FloatTensor>> stacks_;  // by expert
  GgufBuilder file_;
};

}  // namespace

GgufBuilder GoldenAsGguf(const std::string& folder, GoldenExperts experts) {
  std::map<std::string, FloatTensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const bool has_weights =
        absl::StartsWith(name, "model") && absl::EndsWith(name, ".safetensors");
    if (has_weights) ReadFloatTensors(entry.path(), &tensors);
  }
  return GoldenConverter(folder, experts).Convert(tensors);
}

}  // namespace tandem
