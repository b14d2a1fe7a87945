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
#include "tandem/reasoning.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// The parameters for requesting and reading the answer to a conversation.
//
//   ASSIGN_OR_RETURN(request.prompt_ids, EncodeChat(chat, tokenizer, input));
//   ASSIGN_OR_RETURN(const ChatAnswer answer,
//                    ChatAnswer::Of(chat, tokenizer, input, request.prompt_ids));
//   request.shown_special_tokens = answer.shown_special_tokens;
//   request.constraint = answer.constraint;
//   request.thinking_budget = answer.thinking_budget;
//   ...
//   const AnswerDelta said = AnswerReader::Read(answer.reading, completion.text);
//   input.messages.push_back(AssistantMessage(said));
struct ChatAnswer {
  AnswerReader::Options reading{};
  // Markers of reasoning and calls, for Request::shown_special_tokens. Without them the text would
  // not show where reasoning and calls begin.
  std::vector<TokenId> shown_special_tokens{};
  // For Request::constraint, if a function is strict: its calls must match its schema.
  std::optional<OutputConstraint> constraint{};
  // For Request::thinking_budget, if the reasoning is limited.
  std::optional<ThinkingBudget> thinking_budget{};

  // `prompt`: the tokens of `input`. `is_constrained`: the request has its own constraint on the
  // whole text. INVALID_ARGUMENT naming the member of `tools` that is invalid, or that is strict
  // although the request has a constraint; or naming `max_thinking_tokens` if the request has a
  // constraint or the model does not mark its reasoning.
  static absl::StatusOr<ChatAnswer> Of(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                       const ChatInput& input, absl::Span<const TokenId> prompt,
                                       bool is_constrained = false);
};

// Returns the answer as a message for the next turn of the conversation, in the form of OpenAI's
// API except that the arguments of calls are objects, as templates expect. Each call has an id,
// "call00000" for the first: every template accepts ids of nine letters and digits.
JsonValue AssistantMessage(const AnswerDelta& answer);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_ANSWER_H_
