#ifndef TANDEM_INCLUDE_TANDEM_CHAT_ANSWER_H_
#define TANDEM_INCLUDE_TANDEM_CHAT_ANSWER_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/answer_delta.h"
#include "tandem/answer_reader.h"
#include "tandem/chat_input.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// How the answer to a conversation is asked for and read.
//
//   ASSIGN_OR_RETURN(request.prompt_ids, EncodeChat(chat, tokenizer, input));
//   ASSIGN_OR_RETURN(const ChatAnswer answer,
//                    ChatAnswer::Of(chat, tokenizer, input, request.prompt_ids));
//   request.shown_special_tokens = answer.shown_special_tokens;
//   request.constraint = answer.constraint;
//   ...
//   const AnswerDelta said = AnswerReader::Read(answer.reading, completion.text);
//   input.messages.push_back(AssistantMessage(said));
struct ChatAnswer {
  AnswerReader::Options reading{};
  // Markers of reasoning and calls, for Request::shown_special_tokens: without them the text would
  // not show where these begin.
  std::vector<TokenId> shown_special_tokens{};
  // For Request::constraint, where a function is strict: its calls keep to its schema.
  std::optional<OutputConstraint> constraint{};

  // `prompt`: the tokens of `input`. `is_constrained`: the request has a constraint of its own,
  // which holds the whole text. INVALID_ARGUMENT naming the member of `tools` that is wrong, or
  // strict next to a constraint.
  static absl::StatusOr<ChatAnswer> Of(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                       const ChatInput& input, absl::Span<const TokenId> prompt,
                                       bool is_constrained = false);
};

// The answer as a message of the conversation that goes on, as OpenAI's API has them, except that
// the arguments of calls are objects, as templates expect. Each call has an id, "call00000" for the
// first: nine letters and digits are the form that every template takes.
JsonValue AssistantMessage(const AnswerDelta& answer);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_ANSWER_H_
