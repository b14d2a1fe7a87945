#include "tools/sampling_options.h"

#include <limits>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem {

void SamplingFlags::AddTo(CLI::App* app) {
  const std::string group = "Sampling";
  SamplingParams& s = params;
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return app->add_option(name, value, help)->group(group);
  };
  add("--temperature", s.temperature,
      absl::StrCat("0 always takes the most likely token [", s.temperature, "]"))
      ->type_name("T");
  add("--top-k", s.top_k, "Keep the K most likely tokens; 0 keeps all [0]")->type_name("K");
  add("--top-p", s.top_p, "Keep the most likely tokens that reach this sum [1]")->type_name("P");
  add("--min-p", s.min_p, "Keep tokens with at least this share of the largest probability [0]")
      ->type_name("P");
  add("--repetition-penalty", s.repetition_penalty, "Above 1 avoids tokens seen before [1]")
      ->type_name("R");
  add("--frequency-penalty", s.frequency_penalty, "Taken off per occurrence in the output [0]")
      ->type_name("F");
  add("--presence-penalty", s.presence_penalty, "Taken off once for tokens in the output [0]")
      ->type_name("F");
  add("--logit-bias", logit_bias, "Added to a token's logit; repeatable")->type_name("ID:BIAS");
  add("--seed", seed, "Makes the output a function of model, prompt and parameters alone")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
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
          absl::StrCat("--logit-bias: \"", entry, "\" is not ID:BIAS"));
    }
    params.logit_bias.emplace_back(id, bias);
  }
  return params.Validate(std::numeric_limits<int>::max());
}

}  // namespace tandem
