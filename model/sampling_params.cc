#include "tandem/sampling_params.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {

absl::Status SamplingParams::Validate(int vocab_size) const {
  absl::Status status;
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits& limits) {
    status.Update(CheckWithin(parameter.name, this->*member, limits));
  });
  RETURN_IF_ERROR(status);
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return FieldError("logit_bias",
                        absl::StrCat("token ", id, " is not in the vocabulary of ", vocab_size));
    }
    if (Limits{.low = -100, .high = 100}.Contain(bias)) continue;
    return FieldError("logit_bias",
                      absl::StrCat("must be from -100 to 100, got ", bias, " for token ", id));
  }
  return absl::OkStatus();
}

}  // namespace tandem
