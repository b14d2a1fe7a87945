#include "tools/checkpoints/gguf_output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/blocks.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/gguf_keys.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 32;  // the format's default

// Appends a number in little-endian order: every machine that Tandem runs on is little-endian.
template <typename Number>
void Append(Number number, std::string* out) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out->append(bytes, sizeof(Number));
}

void AppendText(std::string_view text, std::string* out) {
  Append<uint64_t>(text.size(), out);
  out->append(text);
}

template <typename Number>
void AppendValue(Number number, std::string* out) {
  Append(number, out);
}
void AppendValue(bool value, std::string* out) { Append<uint8_t>(value ? 1 : 0, out); }
void AppendValue(const std::string& text, std::string* out) { AppendText(text, out); }
template <typename Element>
void AppendValue(const std::vector<Element>& elements, std::string* out) {
  Append<uint64_t>(elements.size(), out);
  for (const auto& element : elements) AppendValue(static_cast<const Element&>(element), out);
}

}  // namespace

void GgufHeader::Add(std::string_view key, const GgufValue& value) {
  constexpr GgufKind kKinds[] = {GgufKind::kUint32, GgufKind::kFloat32, GgufKind::kBool,
                                 GgufKind::kString};
  constexpr GgufKind kElementKinds[] = {GgufKind::kInt32, GgufKind::kFloat32, GgufKind::kBool,
                                        GgufKind::kString};
  const bool is_array = value.index() >= std::size(kKinds);
  ++num_keys_;
  AppendText(key, &keys_);
  Append(is_array ? GgufKind::kArray : kKinds[value.index()], &keys_);
  if (is_array) Append(kElementKinds[value.index() - std::size(kKinds)], &keys_);
  std::visit([&](const auto& v) { AppendValue(v, &keys_); }, value);
}

void GgufHeader::Copy(const GgufFile& file, std::string_view key) {
  ++num_keys_;
  AppendText(key, &keys_);
  keys_ += file.EncodedValue(key);
}

void GgufHeader::AddTensor(std::string_view name, absl::Span<const int64_t> shape, DType dtype) {
  auto bytes = static_cast<int64_t>(RowBytes(dtype, shape.back()));
  for (size_t i = 0; i + 1 < shape.size(); ++i) bytes *= shape[i];
  AddTensor(name, shape, GgufTensorTypeNumber(dtype), bytes);
}

void GgufHeader::AddInt64Tensor(std::string_view name, int64_t size) {
  AddTensor(name, {size}, kGgufInt64Type, static_cast<int64_t>(size * sizeof(int64_t)));
}

void GgufHeader::AddTensor(std::string_view name, absl::Span<const int64_t> shape, uint32_t type,
                           int64_t bytes) {
  ++num_tensors_;
  AppendText(name, &tensors_);
  Append(static_cast<uint32_t>(shape.size()), &tensors_);
  for (size_t i = shape.size(); i-- > 0;) Append<uint64_t>(shape[i], &tensors_);
  Append(type, &tensors_);
  Append<uint64_t>(tensor_bytes_, &tensors_);
  tensor_bytes_ += bytes + static_cast<int64_t>(PaddingAfter(bytes).size());
}

std::string GgufHeader::Bytes() const {
  constexpr uint32_t kVersion = 3;
  std::string bytes = "GGUF";
  Append(kVersion, &bytes);
  Append(num_tensors_, &bytes);
  Append(num_keys_, &bytes);
  bytes += keys_;
  bytes += tensors_;
  return bytes + PaddingAfter(static_cast<int64_t>(bytes.size()));
}

std::string GgufHeader::PaddingAfter(int64_t bytes) {
  return std::string((kAlignment - bytes % kAlignment) % kAlignment, '\0');
}

namespace {

// Adds keys with the architecture's prefix: "block_count" becomes "llama.block_count".
class KeyWriter {
 public:
  KeyWriter(const ModelConfig& config, const GgufForm& form, GgufHeader* header)
      : config_(config), family_(*FamilyOfType(config.family)), form_(form), header_(*header) {}

  void AddSizes() {
    header_.Add("general.architecture", form_.architecture);
    header_.Add("general.quantization_version", uint32_t{2});
    Int("context_length", config_.context_length);
    Int("embedding_length", config_.hidden_size);
    Int("block_count", config_.num_layers);
    Int("feed_forward_length", config_.intermediate_size);
    Int("attention.head_count", config_.num_heads);
    Int("attention.head_count_kv", config_.num_kv_heads);
    Int("attention.key_length", config_.head_dim);
    Int("attention.value_length", config_.head_dim);
    Int("rope.dimension_count", config_.rotary_dim);
    Int("vocab_size", config_.vocab_size);
    if (config_.num_experts > 0) AddExperts();
    Float(config_.norm_form == NormForm::kRms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon",
          config_.rms_norm_epsilon);
  }

  void AddWindows() {
    // The architecture's rule, not the family's: mistral and mixtral are written as llama.
    const WindowRule rule = FamilyOfGguf(form_.architecture, /*has_experts=*/false)->window_rule;
    if (rule != WindowRule::kPattern && rule != WindowRule::kEveryLayer) return;
    const int window = *absl::c_max_element(config_.windows);
    if (window > 0 || form_.window == 0) Int("attention.sliding_window", window);
    if (window == 0 && form_.window < 0) Int("attention.sliding_window", config_.context_length);
    if (rule != WindowRule::kPattern) return;
    std::vector<bool> slides;
    bool is_usual = true;
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      slides.push_back(config_.windows[layer] > 0);
      is_usual &= slides.back() == ((layer + 1) % family_.window_pattern != 0);
    }
    if (is_usual || (window == 0 && form_.window == 0)) return;
    header_.Add(Key("attention.sliding_window_pattern"), slides);
  }

  void AddRope() {
    const RopeConfig& rope = config_.rope;
    Float("rope.freq_base", rope.theta);
    const bool has_local = absl::c_linear_search(config_.rotations, LayerRotation::kLocal);
    if (has_local && config_.local_rope.theta != RopeConfig().theta) {
      Float("rope.freq_base_swa", config_.local_rope.theta);
    }
    double magnitude = rope.magnitude;
    switch (rope.type) {
      case RopeConfig::Type::kDefault:
      case RopeConfig::Type::kLlama3:
        break;
      case RopeConfig::Type::kLinear:
        AddScaling("linear");
        Float("rope.scaling.factor", rope.factor);
        break;
      case RopeConfig::Type::kYarn:
        AddScaling("yarn");
        Float("rope.scaling.factor", rope.factor);
        Int("rope.scaling.original_context_length", rope.original_context);
        Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
        Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
        magnitude /= 0.1 * std::log(rope.factor) + 1.0;  // readers derive this part
        break;
      case RopeConfig::Type::kLongRope:
        AddScaling("longrope");
        Int("rope.scaling.original_context_length", rope.original_context);
        break;
    }
    if (static_cast<float>(magnitude) != 1.0f) Float("rope.scaling.attn_factor", magnitude);
  }

  void AddScales() {
    if (family_.Reads("residual_multiplier")) {
      Float("embedding_scale", config_.embedding_scale);
      Float("residual_scale", config_.residual_scale);
      Float("attention.scale", config_.attention_scale);
    }
    if (family_.Reads("logits_scaling")) Float("logit_scale", 1.0f / config_.logits_scale);
    if (family_.Reads("logit_scale")) Float("logit_scale", config_.logits_scale);
    if (config_.attention_soft_cap > 0) {
      Float("attn_logit_softcapping", config_.attention_soft_cap);
    }
    if (config_.logits_soft_cap > 0) Float("final_logit_softcapping", config_.logits_soft_cap);
  }

  void AddDraftHead() {
    if (!config_.is_draft_head()) return;
    // Without the key a head reads the layers that are the default for the target's size.
    if (!config_.target_layers.empty()) {
      header_.Add(Key(kGgufHeadLayers), config_.target_layers);
    }
    Int(kGgufHeadTargetSize, config_.target_hidden_size);
    if (config_.state_input == StateInput::kNextToEmbedding) {
      header_.Add(Key(kGgufHeadNormsResidual), config_.norms_residual);
    }
  }

 private:
  void AddExperts() {
    Int("expert_count", config_.num_experts);
    Int("expert_used_count", config_.experts_per_row);
    if (family_.expert_rule == ExpertRule::kSparseSteps) {
      Int("expert_feed_forward_length", config_.expert_size);
    }
  }
  std::string Key(absl::string_view name) const {
    return absl::StrCat(form_.architecture, ".", name);
  }
  void Int(absl::string_view name, int value) {
    header_.Add(Key(name), static_cast<uint32_t>(value));
  }
  void Float(absl::string_view name, double value) {
    header_.Add(Key(name), static_cast<float>(value));
  }
  void AddScaling(absl::string_view type) {
    header_.Add(Key("rope.scaling.type"), std::string(type));
  }

  const ModelConfig& config_;
  const ModelFamily& family_;
  const GgufForm& form_;
  GgufHeader& header_;
};

bool AreNear(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

// The window of each layer; 0 where a window is not shorter than the context.
std::vector<int> EffectiveWindows(const ModelConfig& config) {
  std::vector<int> windows = config.windows;
  for (int& window : windows) {
    if (window >= config.context_length) window = 0;
  }
  return windows;
}

// Whether both rotate alike, up to rounding: a file has 32-bit numbers, and divisors in place of a
// rule.
bool SameRotation(const RopeConfig& a, const RopeConfig& b, int rotary_dim) {
  const bool is_long = a.type == RopeConfig::Type::kLongRope;
  if (is_long != (b.type == RopeConfig::Type::kLongRope)) return false;
  if (is_long && a.original_context != b.original_context) return false;
  if (!AreNear(a.magnitude, b.magnitude)) return false;
  for (const bool longer : {false, true}) {
    if (!absl::c_equal(a.InverseFrequencies(rotary_dim, longer && is_long),
                       b.InverseFrequencies(rotary_dim, longer && is_long), AreNear)) {
      return false;
    }
  }
  return true;
}

// The config.json name of the first field that differs, apart from end tokens; empty if all agree.
// Fields that are equal up to rounding are made equal in `b`, so that operator== compares the rest.
std::string DifferenceOf(const ModelConfig& a, ModelConfig b) {
  if (EffectiveWindows(a) != EffectiveWindows(b)) return "a sliding window";
  if (a.rotations != b.rotations) return "which layers have positions";
  if (a.rotary_dim != b.rotary_dim) return "partial_rotary_factor";
  if (!SameRotation(a.rope, b.rope, a.rotary_dim)) return "rope_scaling";
  const bool has_local = absl::c_linear_search(a.rotations, LayerRotation::kLocal);
  if (has_local && !SameRotation(a.local_rope, b.local_rope, a.rotary_dim)) {
    return "the scaling of positions in sliding layers";
  }
  constexpr std::pair<const char*, float ModelConfig::*> kScales[] = {
      {"query_pre_attn_scalar or another scale of scores", &ModelConfig::attention_scale},
      {"attn_logit_softcapping", &ModelConfig::attention_soft_cap},
      {"final_logit_softcapping", &ModelConfig::logits_soft_cap},
      {"a scale of embeddings", &ModelConfig::embedding_scale},
      {"residual_multiplier", &ModelConfig::residual_scale},
      {"a scale of logits", &ModelConfig::logits_scale},
      {"the epsilon of norms", &ModelConfig::rms_norm_epsilon},
  };
  for (const auto& [name, scale] : kScales) {
    if (!AreNear(a.*scale, b.*scale)) return name;
    b.*scale = a.*scale;
  }
  if (a.expert_layers != b.expert_layers) {
    return "which layers have experts (decoder_sparse_step, mlp_only_layers)";
  }
  if (a.renormalises_experts != b.renormalises_experts) return "norm_topk_prob";
  b.windows = a.windows;
  b.rope = a.rope;
  b.local_rope = a.local_rope;
  // Several families share an architecture, and only config.json has ignored keys and other parts.
  b.family = a.family;
  b.has_other_parts = a.has_other_parts;
  b.ignored_keys = a.ignored_keys;
  b.eos_token_ids = a.eos_token_ids;
  b.has_ends_by_name = a.has_ends_by_name;
  return a == b ? "" : "the shape of the model";
}

}  // namespace

void AddConfigKeys(const ModelConfig& config, const GgufForm& form, GgufHeader* header) {
  KeyWriter writer(config, form, header);
  writer.AddSizes();
  writer.AddWindows();
  writer.AddRope();
  writer.AddScales();
  writer.AddDraftHead();
  if (config.mask_token != kNoMaskToken) {
    header->Add(kGgufDraftMask, static_cast<uint32_t>(config.mask_token));
  }
}

std::vector<GgufRopeTensor> RopeTensorsOf(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.type == RopeConfig::Type::kLongRope) {
    return {{kGgufLongDivisors, rope.long_divisors}, {kGgufShortDivisors, rope.short_divisors}};
  }
  std::vector<float> divisors = rope.divisors;
  if (rope.type == RopeConfig::Type::kLlama3) {
    RopeConfig plain;
    plain.theta = rope.theta;
    divisors = plain.InverseFrequencies(config.rotary_dim);
    const std::vector<float> scaled = rope.InverseFrequencies(config.rotary_dim);
    for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  }
  if (divisors.empty()) return {};
  return {{kGgufDivisors, std::move(divisors)}};
}

absl::Status CheckIsReadAs(const ModelConfig& config, absl::string_view beginning,
                           const std::string& source) {
  const auto file = GgufFile::Parse(
      {reinterpret_cast<const std::byte*>(beginning.data()), beginning.size()}, "the file",
      /*may_end_early=*/true);
  if (!file.ok()) return file.status();
  const absl::StatusOr<ModelConfig> read = ReadGgufConfig(**file);
  if (!read.ok()) {
    return HasNoPlaceInGguf(
        source, absl::StrCat("a setting that readers reject (", read.status().message(), ")"));
  }
  const std::string difference = DifferenceOf(config, *read);
  return difference.empty() ? absl::OkStatus() : HasNoPlaceInGguf(source, difference);
}

absl::Status HasNoPlaceInGguf(const std::string& source, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": ", what,
                   " has no place in a GGUF file; with a folder as --out the model keeps its own "
                   "files"));
}

}  // namespace tandem
