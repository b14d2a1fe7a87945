// What a GGUF file says of a model beside its tensors, made of a Hugging Face folder.
#ifndef TANDEM_TOOLS_GGUF_METADATA_H_
#define TANDEM_TOOLS_GGUF_METADATA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/model_config.h"
#include "tools/gguf_output.h"

namespace tandem {

// The configuration as a GGUF file's architecture has it: Mistral's models are llama's there.
ModelConfig AsGgufConfig(ModelConfig config);

// Adds the architecture and the sizes. What GGUF has no key for, sliding windows, is left out.
void AddConfigKeys(const ModelConfig& gguf_config, GgufHeader* header);

// The divisors of rope_freqs.weight, which GGUF has in place of Llama 3's scaling: [head_dim / 2],
// or none.
std::vector<float> RopeDivisors(const ModelConfig& config);

// Adds the folder's tokenizer, end tokens and chat template, so that the file needs nothing beside
// it. INVALID_ARGUMENT naming what a GGUF file cannot say: a tokenizer other than byte-level BPE
// whose texts are cut in one of the ways that have a name there, or sliding windows.
absl::Status AddTextKeys(const std::string& folder, const ModelConfig& config, GgufHeader* header);

// Says that there is no tokenizer; other programs read the file with ids alone then.
void AddNoTextKeys(GgufHeader* header);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GGUF_METADATA_H_
