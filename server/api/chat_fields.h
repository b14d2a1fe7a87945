// The fields of a conversation, which form the input of a chat template.
#ifndef TANDEM_SERVER_API_CHAT_FIELDS_H_
#define TANDEM_SERVER_API_CHAT_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json/request_fields.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// Reads "content": a string, or a list of {"type": "text", "text": ...}. It may be absent if
// `may_lack`. `name` is the field's name.
std::string ReadContent(RequestFields* fields, bool may_lack, const std::string& name = "content");
// Reads "name" and "arguments". Arguments given as a string of JSON are parsed, as templates
// expect. Other strings are kept, because a call may have been cut short.
JsonValue ReadFunctionCall(RequestFields* function);

// Reads "messages" and the fields that control the prompt. Roles are system, user, assistant and
// tool; "developer" becomes "system". Contents become strings; ReadFunctionCall reads the
// arguments of tool calls. Errors are remembered by `fields`.
void ReadChatInput(RequestFields* fields, ChatInput* chat);

// Reads "chat_template_kwargs", one of those fields.
void ReadTemplateVariables(RequestFields* fields, ChatInput* chat);

// Reads one message of the list. `path` is the name of `object` in errors.
void ReadMessage(const JsonValue& object, const std::string& path, RequestFields* fields,
                 JsonValue* messages);

// Treats as unknown fields those names of messages in the list `field` that the model's template
// does not write. The name of a tool message is left alone, because its call has the same name.
void IgnoreUnwrittenNames(const std::string& field, const ServedModel& model,
                          RequestFields* fields);

// The header, and its value, of answers to prompts with tools in the generic form
// (include/tandem/generic_tools.h).
inline constexpr char kToolFormatHeader[] = "X-Tandem-Tool-Format";
inline constexpr char kGenericToolFormat[] = "generic";

// Returns whether the prompt has tools in the generic form.
bool HasGenericTools(const ChatInput& chat, const ServedModel& model);

// Returns the tokens of the prompt. INVALID_ARGUMENT names a field that the model's template has no
// place for.
absl::StatusOr<std::vector<TokenId>> EncodeChatInput(const ChatInput& chat,
                                                     const ServedModel& model);

// Adds the tokens that end an answer in the template's family, in case the model's own list lacks
// them.
void AddEndTokens(const ServedModel& model, Request* options);

// Returns the last message's content if it is an assistant's, else an empty string. `echo` puts it
// before the answer.
std::string EchoOf(const ChatInput& chat);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_CHAT_FIELDS_H_
