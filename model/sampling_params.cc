#include "tandem/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

absl::Status CheckRange(absl::string_view name, float value, bool allowed,
                        absl::string_view what_is_allowed) {
  if (allowed && std::isfinite(value)) return absl::OkStatus();
  return FieldError(name, absl::StrCat(value, " is not ", what_is_allowed));
}

}  // namespace

absl::Status SamplingParams::Validate(int vocab_size) const {
  RETURN_IF_ERROR(CheckRange("temperature", temperature, temperature >= 0, "a number from 0 on"));
  if (top_k < 0) {
    return FieldError("top_k", absl::StrCat(top_k, " is not 0 (keep everything) or more"));
  }
  RETURN_IF_ERROR(CheckRange("top_p", top_p, top_p > 0 && top_p <= 1, "above 0 and at most 1"));
  RETURN_IF_ERROR(CheckRange("min_p", min_p, min_p >= 0 && min_p <= 1, "from 0 to 1"));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", repetition_penalty, repetition_penalty > 0,
                             "a number above 0"));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty,
                             std::abs(frequency_penalty) <= 2, "from -2 to 2"));
  RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, std::abs(presence_penalty) <= 2,
                             "from -2 to 2"));
  if (min_tokens < 0) {
    return FieldError("min_tokens", absl::StrCat(min_tokens, " is not 0 or more"));
  }
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return FieldError("logit_bias",
                        absl::StrCat("token ", id, " is not in the vocabulary of ", vocab_size));
    }
    RETURN_IF_ERROR(
        CheckRange("logit_bias", bias, std::abs(bias) <= 100,
                   absl::StrCat("from -100 to 100, as that of token ", id, " must be")));
  }
  return absl::OkStatus();
}

}  // namespace tandem
