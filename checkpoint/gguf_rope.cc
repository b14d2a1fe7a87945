#include "checkpoint/gguf_rope.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "checkpoint/config_limits.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/weights.h"
#include "json/json_text.h"

namespace tandem {
namespace {

class GgufRopeReader {
 public:
  GgufRopeReader(const GgufKeys& keys, ModelConfig* model) : keys_(keys), model_(*model) {}

  absl::Status Read() {
    RopeConfig& rope = model_.rope;
    constexpr char kBase[] = "rope.freq_base";
    constexpr char kLocalBase[] = "rope.freq_base_swa";
    ASSIGN_OR_RETURN(rope.theta, keys_.Number(kBase, 1, kMaxTheta, rope.theta));
    if (keys_.Has(kLocalBase)) {
      ASSIGN_OR_RETURN(const double theta, keys_.Number(kLocalBase, 1, kMaxTheta));
      const bool has_local = keys_.family().rotation_rule == RotationRule::kLocalWindows;
      if (has_local) model_.local_rope.theta = theta;
      if (!has_local && keys_.family().window_rule == WindowRule::kPattern && theta != rope.theta) {
        return keys_.Wrong(kLocalBase, absl::StrCat(theta),
                           absl::StrCat(rope.theta, ", as ", keys_.Whole(kBase), " says"));
      }
    }
    RETURN_IF_ERROR(ReadRotaryDim());
    RETURN_IF_ERROR(ReadScaling());
    return ReadDivisors();
  }

 private:
  absl::Status ReadRotaryDim() {
    constexpr char kKey[] = "rope.dimension_count";
    ASSIGN_OR_RETURN(model_.rotary_dim, keys_.Int(kKey, 1, kMaxHeadDim, model_.head_dim));
    const bool may_be_partial = keys_.family().partial_rotary > 0.0;
    if (!may_be_partial && model_.rotary_dim != model_.head_dim) {
      return keys_.Wrong(kKey, absl::StrCat(model_.rotary_dim),
                         absl::StrCat(model_.head_dim, ", the whole of a head"));
    }
    if (model_.rotary_dim % 2 != 0 || model_.rotary_dim > model_.head_dim) {
      return keys_.Wrong(kKey, absl::StrCat(model_.rotary_dim),
                         absl::StrCat("an even integer up to ", model_.head_dim, ", a whole head"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadScaling() {
    RopeConfig& rope = model_.rope;
    constexpr char kType[] = "rope.scaling.type";
    constexpr char kMagnitude[] = "rope.scaling.attn_factor";
    // Linear where only a factor is given, or nothing.
    ASSIGN_OR_RETURN(const std::string_view type, keys_.String(kType, "linear"));
    double factor = 1.0;
    // The second is the name that the key had in the format's first year.
    for (const char* const key : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (!keys_.Has(key)) continue;
      ASSIGN_OR_RETURN(factor, keys_.Number(key, 0, kMaxRopeFactor));
      if (factor == 0) factor = 1.0;  // as in the reference
      break;
    }
    ASSIGN_OR_RETURN(rope.magnitude,
                     keys_.Number(kMagnitude, kLeastMultiplier, kMostMultiplier, 1.0));
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
      return keys_.Wrong(kType, Quoted(View(type)),
                         absl::StrCat("none, linear, yarn", takes_factors ? ", longrope" : ""));
    }
    rope.type = RopeConfig::Type::kLongRope;
    if (factor == 1.0) return absl::OkStatus();
    return keys_.Wrong("rope.scaling.factor", absl::StrCat(factor), "nothing with longrope");
  }

  absl::StatusOr<int> ReadOriginalContext() const {
    return keys_.Int("rope.scaling.original_context_length", 1, kMaxContext, model_.context_length);
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
    if (rope.theta <= 1.0) return keys_.Wrong(kBase, absl::StrCat(rope.theta), "more than 1");
    if (factor < 1.0) return keys_.Wrong(kFactor, absl::StrCat(factor), "at least 1 with yarn");
    ASSIGN_OR_RETURN(rope.original_context, ReadOriginalContext());
    const double derived = 0.1 * std::log(factor) + 1.0;
    if (keys_.Has(kOwn)) {
      ASSIGN_OR_RETURN(const double own, keys_.Number(kOwn, 0, kMostMultiplier));
      if (own != 1.0 && std::abs(own - derived) > 1e-6) {
        return keys_.Wrong(kOwn, absl::StrCat(own), absl::StrCat("1, or ", derived, " as derived"));
      }
    }
    rope.magnitude *= derived;
    const double context = factor * rope.original_context;
    if (context > kMaxContext) {
      return keys_.Wrong(kFactor, absl::StrCat(factor),
                         absl::StrCat("at most ", kMaxContext, " positions in all"));
    }
    model_.context_length = static_cast<int>(context);
    return absl::OkStatus();
  }

  // The tensors that divide angles.
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

  // [rotary_dim / 2], or none if there is no such tensor.
  absl::StatusOr<std::vector<float>> ReadDivisors(const char* name, bool is_allowed) const {
    std::vector<float> divisors;
    const GgufTensor* const tensor = keys_.Tensor(name);
    if (tensor == nullptr) return divisors;
    if (!is_allowed) return keys_.HasNoPlace(*tensor);
    const int size = model_.rotary_dim / 2;
    if (tensor->shape.size() != 1 || tensor->shape[0] != size) {
      return keys_.WrongTensor(*tensor, absl::StrCat("shape ", ShapeText(tensor->shape)),
                               absl::StrCat("[", size, "], half of what is rotated of a head"));
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

  const GgufKeys& keys_;
  ModelConfig& model_;
};

}  // namespace

absl::Status ReadGgufRope(const GgufKeys& keys, ModelConfig* model) {
  return GgufRopeReader(keys, model).Read();
}

}  // namespace tandem
