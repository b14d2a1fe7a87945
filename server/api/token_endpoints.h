// GET /tokenizer_info, and POST /tokenize, /detokenize and .../render, which use only the
// tokenizer. Answers are JSON texts that are written directly, because a tree would use ten times
// the memory.
#ifndef TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_
#define TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_template.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Answers {"prompt": TEXT, "add_special_tokens": true, "special": "parse"|"plain",
// "return_token_strs": true} with {"tokens": [IDS], "token_strs": [TEXTS], "count": N,
// "max_model_len": N}. `add_special_tokens` adds the tokens around a text prompt. `special` says
// whether special tokens spelled out in the text are parsed. "messages" in place of "prompt" gives
// the prompt of that chat; chat_fields.h reads its fields. Unknown fields are added to `ignored`.
struct TokenizeAnswer {
  std::string body;
  bool has_generic_tools = false;  // in the chat's prompt (chat_fields.h)
};
absl::StatusOr<TokenizeAnswer> TokenizeBody(absl::string_view body, const ServedModel& model,
                                            absl::Time now, IgnoredFields* ignored);

// Returns the tokens of a request's prompts without generating. Routers use them to find a worker
// that has them in its cache. The format is vLLM's: for POST /v1/completions [{"token_ids": [IDS]},
// ...], one for each prompt; for POST /v1/chat/completions {"token_ids": [IDS]}.
std::string RenderedBody(const ApiRequest& request);

// Answers {"tokens": [IDS]} with {"prompt": TEXT}, including special tokens.
absl::StatusOr<std::string> DetokenizeBody(absl::string_view body, const ServedModel& model,
                                           IgnoredFields* ignored);

// Returns what clients that split texts with /tokenize need to know about the tokenizer, in vLLM's
// format: a JSON object with the members of the model's tokenizer_config.json, if it has one.
// Always present are `tokenizer_class`; `bos_token`, `eos_token`, `pad_token` and `chat_template`,
// each a text or null; `add_bos_token`; and `model_max_length`, which is `max_length`. Returns
// errors in reading the files.
absl::StatusOr<std::string> TokenizerInfo(const std::string& model,
                                          const ChatTemplate::Source& source,
                                          const Tokenizer& tokenizer, int max_length);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_
