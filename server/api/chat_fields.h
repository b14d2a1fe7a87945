// The fields of a conversation, which a chat template is given.
#ifndef TANDEM_SERVER_API_CHAT_FIELDS_H_
#define TANDEM_SERVER_API_CHAT_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "json/request_fields.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// "content": a string, or a list of {"type": "text", "text": ...}. `may_lack`: it may be absent.
// `name`: its name, if that is another.
std::string ReadContent(RequestFields* fields, bool may_lack, const std::string& name = "content");
// "name" and "arguments", a string of JSON: with what that says, as templates expect it.
JsonValue ReadFunctionCall(RequestFields* function);

// "messages" and the fields of how they are put. Roles are system, user, assistant and tool;
// "developer" becomes "system", contents become strings, and the arguments of tool calls what their
// JSON says, as templates expect it. Errors are remembered by `fields`.
void ReadChatInput(RequestFields* fields, ChatInput* chat);

// "chat_template_kwargs", one of them.
void ReadTemplateVariables(RequestFields* fields, ChatInput* chat);

// One message of that list: `object`, which errors call `path`.
void ReadMessage(const JsonValue& object, const std::string& path, RequestFields* fields,
                 JsonValue* messages);

// Names of messages in the list `field` that the model's template does not write: they count as
// fields that are not known. The name of a tool is left alone, which its call has too.
void DisregardUnwrittenNames(const std::string& field, const ServedModel& model,
                             RequestFields* fields);

// The header, and its value, that tell clients that a prompt has tools in the generic form
// (include/tandem/generic_tools.h).
inline constexpr char kToolFormatHeader[] = "X-Tandem-Tool-Format";
inline constexpr char kGenericToolFormat[] = "generic";

// Whether a prompt has them so.
bool HasGenericTools(const ChatInput& chat, const ServedModel& model);

// The tokens of the prompt. INVALID_ARGUMENT naming the field that the model's template has no
// place for.
absl::StatusOr<std::vector<TokenId>> EncodeChatInput(const ChatInput& chat,
                                                     const ServedModel& model);

// The tokens that end an answer in the template's family, where the model's own list lacks them.
void AddEndTokens(const ServedModel& model, Request* options);

// The last message's content if the assistant said it, else nothing: what `echo` puts in front.
std::string EchoOf(const ChatInput& chat);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_CHAT_FIELDS_H_
