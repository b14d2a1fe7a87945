// What a GGUF file says of a model's texts, made of a Hugging Face folder.
#ifndef TANDEM_TOOLS_CHECKPOINTS_GGUF_METADATA_H_
#define TANDEM_TOOLS_CHECKPOINTS_GGUF_METADATA_H_

#include <string>

#include "absl/status/status.h"
#include "checkpoint/model_config.h"
#include "tools/checkpoints/gguf_output.h"

namespace tandem {

// Adds the folder's tokenizer, end tokens and chat template, so that the file needs nothing beside
// it. INVALID_ARGUMENT naming what a GGUF file cannot say: a tokenizer other than byte-level BPE
// whose texts are cut in one of the ways that have a name there, or of SentencePiece's kind
// (gguf_pieces.h).
absl::Status AddTextKeys(const std::string& folder, const ModelConfig& config, GgufHeader* header);

// Says that there is no tokenizer; other programs read the file with ids alone then.
void AddNoTextKeys(GgufHeader* header);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_METADATA_H_
