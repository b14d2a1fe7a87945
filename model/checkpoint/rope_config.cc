#include "model/checkpoint/rope_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/json/config_fields.h"
#include "base/status_macros.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"

namespace tandem {
namespace {

using Json = SortedJson;

// Stretches long waves by the factor, keeps short ones, and blends those between.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const float scale = static_cast<float>(rope.factor);
  const float low_wavelength = static_cast<float>(rope.original_context / rope.low_freq_factor);
  const float high_wavelength = static_cast<float>(rope.original_context / rope.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * M_PI) / frequency;
  if (wavelength > low_wavelength) return frequency / scale;
  if (wavelength < high_wavelength) return frequency;
  const float smooth = (static_cast<float>(rope.original_context) / wavelength -
                        static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / scale + smooth * frequency;
}

// The range of pairs that are blended. Pairs up to `begin` keep their frequency; pairs from `end`
// on are stretched by the factor. The ends turn beta_fast and beta_slow times in the original
// context.
struct YarnRange {
  YarnRange(const RopeConfig& rope, int rotary_dim) {
    const auto pair_that_turns = [&](double times) {
      return rotary_dim * std::log(rope.original_context / (times * 2 * M_PI)) /
             (2 * std::log(rope.theta));
    };
    begin = pair_that_turns(rope.beta_fast);
    end = pair_that_turns(rope.beta_slow);
    if (rope.rounds_range) {
      begin = std::floor(begin);
      end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, rotary_dim - 1.0);
    if (begin == end) end += 0.001;  // as the reference does
  }
  // Returns 1 if a pair keeps its frequency, 0 if it is stretched.
  float Kept(int pair) const {
    const float ramp =
        (static_cast<float>(pair) - static_cast<float>(begin)) / static_cast<float>(end - begin);
    return 1.0f - std::clamp(ramp, 0.0f, 1.0f);
  }
  double begin, end;
};

}  // namespace

std::vector<float> RopeConfig::InverseFrequencies(int rotary_dim, bool is_long) const {
  // Computes in f32 step by step, as the reference does. Only the power is rounded once from
  // double, because libraries differ in its last bit.
  std::vector<float> frequencies(rotary_dim / 2);
  const float scale = static_cast<float>(factor);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const float power = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    frequencies[i] = frequency;
    switch (type) {
      case Type::kDefault:
        break;
      case Type::kLinear:
        frequencies[i] = frequency / scale;
        break;
      case Type::kLlama3:
        frequencies[i] = Llama3Frequency(*this, frequency);
        break;
      case Type::kYarn: {
        const float kept = YarnRange(*this, rotary_dim).Kept(i);
        frequencies[i] = 1.0f / (scale * power) * (1.0f - kept) + frequency * kept;
        break;
      }
      case Type::kLongRope:
        frequencies[i] = 1.0f / ((is_long ? long_divisors : short_divisors)[i] * power);
        break;
    }
  }
  for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= divisors[i];
  return frequencies;
}

namespace {

constexpr double kMinFactor = 1e-6;

// Reads one rope: config.json's own keys and, if present, an object of rope_scaling or
// rope_parameters.
class RopeReader {
 public:
  // `theta`: the base if the object has none.
  RopeReader(const ConfigFields& config, double theta, ModelConfig* model)
      : config_(config), model_(*model) {
    rope_.theta = theta;
  }

  // Returns the rope without an object: the model's own base.
  absl::StatusOr<RopeConfig> Read() { return rope_; }
  absl::StatusOr<RopeConfig> Read(const ConfigFields& scaling, bool may_be_partial) {
    ASSIGN_OR_RETURN(rope_.theta, scaling.Number("rope_theta", 1, kMaxTheta, rope_.theta));
    if (scaling.Has("partial_rotary_factor") && !may_be_partial) {
      RETURN_IF_ERROR(scaling.Only("partial_rotary_factor", 1));
    }
    RETURN_IF_ERROR(ReadType(scaling));
    for (const auto& [key, value] : scaling.object().items()) {
      if (scaling.WasRead(key) || value.is_null() || value == false) continue;
      return scaling.Wrong(key, "nothing with this rope_type");
    }
    return rope_;
  }

 private:
  using Type = RopeConfig::Type;

  absl::Status ReadType(const ConfigFields& scaling) {
    const Json* const new_name = scaling.Find("rope_type");
    const Json* const old_name = scaling.Find("type");
    if (new_name != nullptr && old_name != nullptr && *new_name != *old_name) {
      return scaling.Wrong("type", absl::StrCat(Shown(*new_name), ", as rope_type says"));
    }
    const Json* const type = new_name != nullptr ? new_name : old_name;
    const auto is = [&](absl::string_view name) { return type != nullptr && IsText(*type, name); };
    if (is("linear")) {
      rope_.type = Type::kLinear;
      return ReadFactor(scaling);
    }
    if (is("llama3")) return ReadLlama3(scaling);
    if (is("dynamic")) return CheckDynamic(scaling);
    if (is("yarn")) return ReadYarn(scaling);
    if (is("longrope") || is("su")) return ReadLongRope(scaling);
    if (type == nullptr ? scaling.Find("factor") == nullptr : is("default")) {
      return absl::OkStatus();
    }
    return scaling.Wrong(new_name == nullptr && old_name != nullptr ? "type" : "rope_type",
                         "default, linear, llama3, dynamic, yarn, longrope");
  }

  absl::Status ReadFactor(const ConfigFields& scaling) {
    ASSIGN_OR_RETURN(rope_.factor, scaling.Number("factor", 1, kMaxRopeFactor));
    return absl::OkStatus();
  }

  absl::Status ReadLlama3(const ConfigFields& scaling) {
    rope_.type = Type::kLlama3;
    RETURN_IF_ERROR(ReadFactor(scaling));
    ASSIGN_OR_RETURN(rope_.low_freq_factor,
                     scaling.Number("low_freq_factor", kMinFactor, kMaxRopeFactor));
    ASSIGN_OR_RETURN(rope_.high_freq_factor,
                     scaling.Number("high_freq_factor", kMinFactor, kMaxRopeFactor));
    if (rope_.low_freq_factor >= rope_.high_freq_factor) {
      return scaling.Wrong("high_freq_factor",
                           absl::StrCat("more than low_freq_factor ", rope_.low_freq_factor));
    }
    ASSIGN_OR_RETURN(rope_.original_context,
                     scaling.Int("original_max_position_embeddings", 1, kMaxContext));
    return absl::OkStatus();
  }

  // The reference stretches the base by ((factor * n / m) - (factor - 1)) ^ (dim / (dim - 2)), n =
  // max(m, positions in use), m = max_position_embeddings. That is 1 up to m positions, and this
  // engine reads no more than m.
  absl::Status CheckDynamic(const ConfigFields& scaling) {
    RETURN_IF_ERROR(ReadFactor(scaling));
    rope_.factor = 1.0;
    return scaling.Only("original_max_position_embeddings", model_.context_length);
  }

  // Reads the context that a model was first trained on: from the object, else from config.json,
  // else the whole context.
  absl::Status ReadOriginalContext(const ConfigFields& scaling) {
    constexpr char kKey[] = "original_max_position_embeddings";
    ASSIGN_OR_RETURN(const int beside, config_.Int(kKey, 1, kMaxContext, model_.context_length));
    ASSIGN_OR_RETURN(rope_.original_context, scaling.Int(kKey, 1, kMaxContext, beside));
    return absl::OkStatus();
  }

  absl::Status ReadYarn(const ConfigFields& scaling) {
    rope_.type = Type::kYarn;
    if (rope_.theta <= 1.0) return scaling.Wrong("rope_theta", "more than 1 with yarn");
    RETURN_IF_ERROR(ReadFactor(scaling));
    RETURN_IF_ERROR(ReadOriginalContext(scaling));
    ASSIGN_OR_RETURN(rope_.beta_fast,
                     scaling.Number("beta_fast", kMinFactor, kMaxRopeFactor, 32.0));
    ASSIGN_OR_RETURN(rope_.beta_slow, scaling.Number("beta_slow", kMinFactor, kMaxRopeFactor, 1.0));
    if (rope_.beta_fast < rope_.beta_slow) {
      return scaling.Wrong("beta_fast", absl::StrCat("at least beta_slow ", rope_.beta_slow));
    }
    ASSIGN_OR_RETURN(rope_.rounds_range, scaling.Bool("truncate", true));
    const auto magnitude = [&](double weight) {
      return rope_.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope_.factor) + 1.0;
    };
    ASSIGN_OR_RETURN(const double mscale, scaling.Number("mscale", 0, kMaxRopeFactor, 0.0));
    ASSIGN_OR_RETURN(const double of_all, scaling.Number("mscale_all_dim", 0, kMaxRopeFactor, 0.0));
    const double derived =
        mscale > 0 && of_all > 0 ? magnitude(mscale) / magnitude(of_all) : magnitude(1.0);
    ASSIGN_OR_RETURN(rope_.magnitude,
                     scaling.Number("attention_factor", kMinFactor, kMaxRopeFactor, derived));
    const double context = rope_.factor * rope_.original_context;
    if (context > kMaxContext) {
      return scaling.Wrong("factor", absl::StrCat("at most ", kMaxContext, " positions in all"));
    }
    model_.context_length = static_cast<int>(context);
    return absl::OkStatus();
  }

  absl::Status ReadLongRope(const ConfigFields& scaling) {
    rope_.type = Type::kLongRope;
    RETURN_IF_ERROR(ReadOriginalContext(scaling));
    ASSIGN_OR_RETURN(rope_.short_divisors, ReadDivisors(scaling, "short_factor"));
    ASSIGN_OR_RETURN(rope_.long_divisors, ReadDivisors(scaling, "long_factor"));
    const double stretch = static_cast<double>(model_.context_length) / rope_.original_context;
    ASSIGN_OR_RETURN(rope_.factor, scaling.Number("factor", kMinFactor, kMaxRopeFactor, stretch));
    double derived = 1.0;
    if (rope_.factor > 1) {
      derived = std::sqrt(1.0 + std::log(rope_.factor) / std::log(rope_.original_context));
    }
    if (!std::isfinite(derived)) derived = 1.0;  // if the original context is 1
    ASSIGN_OR_RETURN(rope_.magnitude,
                     scaling.Number("attention_factor", kMinFactor, kMaxRopeFactor, derived));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> ReadDivisors(const ConfigFields& scaling,
                                                  const char* key) const {
    const int count = model_.rotary_dim / 2;
    const std::string allowed =
        absl::StrCat("a list of ", count, " numbers from ", kMinFactor, " to ", kMaxRopeFactor,
                     ", half of the rotated elements");
    const Json* const list = scaling.Find(key);
    if (list == nullptr || !list->is_array() || list->size() != static_cast<size_t>(count)) {
      return scaling.Wrong(key, allowed);
    }
    std::vector<float> divisors;
    for (const Json& element : *list) {
      const double divisor = element.is_number() ? element.get<double>() : 0.0;
      if (!(divisor >= kMinFactor && divisor <= kMaxRopeFactor)) {
        return scaling.Wrong(key, allowed);
      }
      divisors.push_back(static_cast<float>(divisor));
    }
    return divisors;
  }

  const ConfigFields& config_;
  ModelConfig& model_;
  RopeConfig rope_;
};

// Returns the object of rope_parameters or, in older files, rope_scaling.
using RopeObject = std::optional<ConfigFields>;
absl::StatusOr<RopeObject> FindRopeObject(const ConfigFields& config) {
  const Json* const scaling = config.Find("rope_scaling");
  const Json* const parameters = config.Find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    return config.Wrong("rope_scaling", "nothing next to rope_parameters");
  }
  if (scaling == nullptr && parameters == nullptr) return std::nullopt;
  const char* const key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (!config.Find(key)->is_object()) return config.Wrong(key, "an object or null");
  return config.Object(key);
}

// Reads how many elements of a head are rotated.
absl::Status ReadRotaryDim(const ConfigFields& config, const RopeObject& rope,
                           const ModelFamily& family, ModelConfig* model) {
  model->rotary_dim = model->head_dim;
  if (family.partial_rotary == 0.0) return absl::OkStatus();
  constexpr char kKey[] = "partial_rotary_factor";
  ASSIGN_OR_RETURN(double part, config.Number(kKey, 0, 1, family.partial_rotary));
  if (rope.has_value()) {
    ASSIGN_OR_RETURN(part, rope->Number(kKey, 0, 1, part));
  }
  model->rotary_dim = static_cast<int>(model->head_dim * part);
  if (model->rotary_dim % 2 == 0 && model->rotary_dim > 0) return absl::OkStatus();
  return config.Wrong(kKey,
                      absl::StrCat("a share of the ", model->head_dim,
                                   " elements of a head that gives an even number above 0, not ",
                                   model->rotary_dim));
}

absl::Status ReadMainRope(const ConfigFields& config, const RopeObject& object,
                          const ModelFamily& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(const double theta,
                   config.Number("rope_theta", 1, kMaxTheta, family.defaults.theta));
  RopeReader reader(config, theta, model);
  if (!object.has_value()) {
    ASSIGN_OR_RETURN(model->rope, reader.Read());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(model->rope, reader.Read(*object, family.partial_rotary > 0.0));
  if (config.Find("rope_theta") != nullptr && model->rope.theta != theta) {
    return object->Wrong("rope_theta", absl::StrCat(theta, ", as rope_theta next to it says"));
  }
  return absl::OkStatus();
}

// Reads two ropes: in newer files from an object with one for each kind of layer; in older ones
// from rope_scaling for layers that see everything and only a base for layers that slide.
absl::Status ReadBothRopes(const ConfigFields& config, const RopeObject& object,
                           const ModelFamily& family, ModelConfig* model) {
  constexpr double kLocalTheta = 10000.0;
  constexpr char kFull[] = "full_attention";
  constexpr char kSliding[] = "sliding_attention";
  ASSIGN_OR_RETURN(const double local_theta,
                   config.Number("rope_local_base_freq", 1, kMaxTheta, kLocalTheta));
  const bool has_full = object.has_value() && object->Has(kFull);
  const bool has_sliding = object.has_value() && object->Has(kSliding);
  if (!has_full && !has_sliding) {
    ASSIGN_OR_RETURN(model->local_rope, RopeReader(config, local_theta, model).Read());
    return ReadMainRope(config, object, family, model);
  }
  for (const auto& member : object->object().items()) {
    if (member.key() == kFull || member.key() == kSliding) continue;
    return object->Wrong(member.key(), absl::StrCat(kFull, " and ", kSliding));
  }
  const auto read = [&](const char* key, double theta, RopeConfig* rope) -> absl::Status {
    ASSIGN_OR_RETURN(const ConfigFields fields, object->Object(key));
    ASSIGN_OR_RETURN(*rope, RopeReader(config, theta, model).Read(fields, false));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const double theta,
                   config.Number("rope_theta", 1, kMaxTheta, family.defaults.theta));
  RETURN_IF_ERROR(read(kFull, theta, &model->rope));
  return read(kSliding, local_theta, &model->local_rope);
}

// Returns which layers have rotary embeddings, [num_layers]. 1 in the list means that they do.
absl::StatusOr<std::vector<bool>> ReadListedLayers(const ConfigFields& config, int num_layers) {
  ASSIGN_OR_RETURN(const int interval, config.Int("no_rope_layer_interval", 1, kMaxLayers, 4));
  const Json* const list = config.Find("no_rope_layers");
  const std::string allowed =
      absl::StrCat("a list of 0 or 1 for each of the ", num_layers, " layers");
  if (list != nullptr && (!list->is_array() || list->size() != static_cast<size_t>(num_layers))) {
    return config.Wrong("no_rope_layers", allowed);
  }
  std::vector<bool> listed(num_layers);
  for (int layer = 0; layer < num_layers; ++layer) {
    listed[layer] = list != nullptr ? (*list)[layer] == 1 : (layer + 1) % interval != 0;
    if (list == nullptr || listed[layer] || (*list)[layer] == 0) continue;
    return config.Wrong("no_rope_layers", allowed);
  }
  return listed;
}

}  // namespace

absl::Status ReadRope(const ConfigFields& config, const ModelFamily& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(const RopeObject object, FindRopeObject(config));
  RETURN_IF_ERROR(ReadRotaryDim(config, object, family, model));
  if (family.rotation_rule != RotationRule::kLocalWindows) {
    RETURN_IF_ERROR(ReadMainRope(config, object, family, model));
  } else {
    RETURN_IF_ERROR(ReadBothRopes(config, object, family, model));
  }
  std::vector<bool> listed(model->num_layers);
  if (family.rotation_rule == RotationRule::kListedLayers) {
    ASSIGN_OR_RETURN(listed, ReadListedLayers(config, model->num_layers));
  }
  for (int layer = 0; layer < model->num_layers; ++layer) {
    model->rotations.push_back(family.RotationOf(model->windows[layer] > 0, listed[layer]));
  }
  return absl::OkStatus();
}

}  // namespace tandem
