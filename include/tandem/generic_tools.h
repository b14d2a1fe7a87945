// Functions, calls and results in conversations whose chat template does not support them. They
// become text of the system, the assistant and the user, in a generic form, which is Hermes'.
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

// Whether this conversation needs the generic form: the template does not support tools, and there
// are functions, or calls or results that it does not write.
bool NeedsGenericTools(const ChatTemplate& chat, const ChatInput& input);

// Returns the conversation with tools, calls and results turned into text. Functions are appended
// to the system message or, if the template does not write system messages, put before the first
// question. Results and a question after them become one message, because some templates require
// roles to alternate. INVALID_ARGUMENT naming the message that does not have the form of OpenAI's
// API.
absl::StatusOr<ChatInput> WithGenericTools(const ChatTemplate& chat, const ChatInput& input);

// Calls ChatTemplate::Render: on WithGenericTools if NeedsGenericTools, else with calls in the
// template's own style (CallStyle). If that fails only because the arguments of calls are not
// objects, as those of a call that was cut short, INVALID_ARGUMENT names the first of them.
absl::StatusOr<std::vector<MarkedText>> RenderChat(const ChatTemplate& chat,
                                                   const ChatInput& input);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_GENERIC_TOOLS_H_
