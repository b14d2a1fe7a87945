// GET /tokenizer_info, and POST /tokenize, /detokenize and .../render: the tokenizer alone, no
// model. Answers are JSON texts, written as they are made: a tree of them would take ten times as
// much memory.
#ifndef TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_
#define TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_template.h"
#include "tandem/tokenizer.h"

namespace tandem {

// {"prompt": TEXT, "add_special_tokens": true, "special": "parse"|"plain", "return_token_strs":
// true} to {"tokens": [IDS], "token_strs": [TEXTS], "count": N, "max_model_len": N}.
// `add_special_tokens`: with what stands around a text prompt; `special`: what special tokens
// written in the text are. With "messages" in place of "prompt": the prompt of that chat, whose
// fields chat_fields.h reads. Fields that are not known go to `ignored`.
struct TokenizeAnswer {
  std::string body;
  bool has_generic_tools = false;  // in the chat's prompt (chat_fields.h)
};
absl::StatusOr<TokenizeAnswer> TokenizeBody(absl::string_view body, const ServedModel& model,
                                            absl::Time now, IgnoredFields* ignored);

// The tokens of a request's prompts, as routers ask for them that look for a worker whose cache has
// them; nothing is generated. As vLLM answers it: of POST /v1/completions [{"token_ids": [IDS]},
// ...], one for each prompt; of POST /v1/chat/completions {"token_ids": [IDS]}.
std::string RenderedBody(const ApiRequest& request);

// {"tokens": [IDS]} to {"prompt": TEXT}, special tokens written out.
absl::StatusOr<std::string> DetokenizeBody(absl::string_view body, const ServedModel& model,
                                           IgnoredFields* ignored);

// What clients that cut texts by /tokenize must know of the tokenizer: a JSON object with the
// members of the model's tokenizer_config.json, if it has one, as vLLM answers. Whatever the
// model's format these are there: `tokenizer_class`, `bos_token`, `eos_token` and `pad_token` as
// texts or null, `chat_template` as a text or null, `add_bos_token`, and `model_max_length`, which
// is `max_length`. Errors: those of the files.
absl::StatusOr<std::string> TokenizerInfo(const std::string& model,
                                          const ChatTemplate::Source& source,
                                          const Tokenizer& tokenizer, int max_length);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_TOKEN_ENDPOINTS_H_
