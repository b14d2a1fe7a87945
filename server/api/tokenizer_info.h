// GET /tokenizer_info: what clients that cut texts by /tokenize must know of the tokenizer.
#ifndef TANDEM_SERVER_API_TOKENIZER_INFO_H_
#define TANDEM_SERVER_API_TOKENIZER_INFO_H_

#include <string>

#include "absl/status/statusor.h"
#include "tandem/chat_template.h"
#include "tandem/tokenizer.h"

namespace tandem {

// A JSON object with the members of the model's tokenizer_config.json, if it has one, as vLLM
// answers. Whatever the model's format these are there: `tokenizer_class`, `bos_token`, `eos_token`
// and `pad_token` as texts or null, `chat_template` as a text or null, `add_bos_token`, and
// `model_max_length`, which is `max_length`. Errors: those of the files.
absl::StatusOr<std::string> TokenizerInfo(const std::string& model,
                                          const ChatTemplate::Source& source,
                                          const Tokenizer& tokenizer, int max_length);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_TOKENIZER_INFO_H_
