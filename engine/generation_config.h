#ifndef TANDEM_ENGINE_GENERATION_CONFIG_H_
#define TANDEM_ENGINE_GENERATION_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/sampling_params.h"

namespace tandem {

// How a model's publisher recommends to sample it: temperature, top_p, top_k, min_p and
// repetition_penalty of the generation_config.json in its folder, each as SamplingParams has it
// where the file is silent, and greedily where the file says "do_sample": false. The defaults of a
// model without such a file. INVALID_ARGUMENT naming file and field for values that none can have.
absl::StatusOr<SamplingParams> ReadGenerationConfig(const std::string& model);
// Of the file's text; `name` stands for it in errors.
absl::StatusOr<SamplingParams> ParseGenerationConfig(absl::string_view text,
                                                     const std::string& name);

}  // namespace tandem

#endif  // TANDEM_ENGINE_GENERATION_CONFIG_H_
