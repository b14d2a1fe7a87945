// Functions, calls and results in conversations whose chat template has no place for them: they
// become texts of the system, the assistant and the user, in a generic form, which is Hermes'.
//
//   You may call one or more functions ... <tools> {...} </tools>          (the system)
//   <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>         (the assistant)
//   <tool_response>\n{"name": "f", "content": "2"}\n</tool_response>        (the user)
#ifndef TANDEM_INCLUDE_TANDEM_GENERIC_TOOLS_H_
#define TANDEM_INCLUDE_TANDEM_GENERIC_TOOLS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tandem/chat_input.h"
#include "tandem/chat_template.h"

namespace tandem {

// Whether this conversation has to be put in the generic form: the template has no place for tools,
// and there are functions, or there are calls or results that it does not write either.
bool NeedsGenericTools(const ChatTemplate& chat, const ChatInput& input);

// The conversation without tools, calls and results, which become texts. Functions go to the end of
// the system message; where the template writes no system message, to the beginning of the first
// question. Results, and a question after them, become one message, since some templates want roles
// to alternate. INVALID_ARGUMENT naming the message that is not as OpenAI's API has it.
absl::StatusOr<ChatInput> WithGenericTools(const ChatTemplate& chat, const ChatInput& input);

// ChatTemplate::Render, of WithGenericTools where that is needed, else of calls in the template's
// own style (CallStyle).
absl::StatusOr<std::vector<MarkedText>> RenderChat(const ChatTemplate& chat,
                                                   const ChatInput& input);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_GENERIC_TOOLS_H_
