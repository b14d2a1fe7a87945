#include "tools/sampling_options.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tools/option_group.h"

namespace tandem {

void SamplingFlags::AddTo(CLI::App* app) {
  OptionGroup group(app, "Sampling");
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits& limits) {
    group.Add(parameter.option, parameter.value, &(params.*member), parameter.help, limits);
  });
  group.Add("--logit-bias", "ID:BIAS", &logit_bias,
            "Adds BIAS to the logit of token ID; repeatable");
  group.Add("--seed", "N", &seed,
            "Makes the output depend only on the model, the prompt and the parameters", {.low = 0});
}

absl::Status SamplingFlags::Check() {
  params.logit_bias.clear();
  for (const std::string& entry : logit_bias) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits(':', 1));
    TokenId id = 0;
    float bias = 0.0f;
    if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias: must be ID:BIAS, got \"", entry, "\""));
    }
    params.logit_bias.emplace_back(id, bias);
  }
  return params.Validate(std::numeric_limits<int>::max());
}

}  // namespace tandem
