#ifndef TANDEM_ENGINE_GENERATION_CONFIG_H_
#define TANDEM_ENGINE_GENERATION_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/sampling_params.h"

namespace tandem {

// Reads the sampling parameters that a model's publisher recommends: temperature, top_p, top_k,
// min_p and repetition_penalty from the generation_config.json in its folder. Missing fields have
// the defaults of SamplingParams; "do_sample": false means greedy. Returns the defaults for a model
// without such a file. INVALID_ARGUMENT naming file and field for invalid values.
absl::StatusOr<SamplingParams> ReadGenerationConfig(const std::string& model);
// Parses the file's text; errors call the file `name`.
absl::StatusOr<SamplingParams> ParseGenerationConfig(absl::string_view text,
                                                     const std::string& name);

}  // namespace tandem

#endif  // TANDEM_ENGINE_GENERATION_CONFIG_H_
