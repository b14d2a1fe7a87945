#include "engine/generation_config.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

// The fields of the file that affect the distribution sampled from.
constexpr absl::string_view kRecommended[] = {"temperature", "top_p", "top_k", "min_p",
                                              "repetition_penalty"};

absl::StatusOr<SamplingParams> ReadParams(const JsonValue& json) {
  IgnoredFields others;
  RequestFields fields(&json, "", &others);
  SamplingParams params;
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits& limits) {
    if (!absl::c_linear_search(kRecommended, parameter.name)) return;
    fields.Read(parameter.name, &(params.*member), limits);
  });
  bool samples = true;
  fields.Read("do_sample", &samples);
  if (!samples) params.temperature = 0;
  RETURN_IF_ERROR(fields.Finish());
  return params;
}

}  // namespace

absl::StatusOr<SamplingParams> ParseGenerationConfig(absl::string_view text,
                                                     const std::string& name) {
  ASSIGN_OR_RETURN(const JsonValue json, ParseJsonValue(text, name));
  absl::StatusOr<SamplingParams> params = ReadParams(json);
  if (params.ok()) return params;
  return FieldError(
      name, absl::StrCat(params.status().message(), "; --generation-config none ignores the file"));
}

absl::StatusOr<SamplingParams> ReadGenerationConfig(const std::string& model) {
  const std::string file = absl::StrCat(model, "/generation_config.json");
  const absl::StatusOr<std::string> text = ReadFile(file);
  // A GGUF file is not a folder, so there is no such file.
  if (!text.ok()) return SamplingParams();
  return ParseGenerationConfig(*text, file);
}

}  // namespace tandem
