// The fields of a chat that have to do with functions that the model may call.
#ifndef TANDEM_SERVER_API_TOOL_FIELDS_H_
#define TANDEM_SERVER_API_TOOL_FIELDS_H_

#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"

namespace tandem {

// "tools", "tool_choice" and "parallel_tool_calls" as OpenAI has them. Gives the functions to
// `chat`, and to `request` how calls are found in the answer. Where a call must come, or its
// arguments are held to a schema ("strict"), that is a constraint: not possible beside another. To
// be called behind ReadConstraint.
void ReadTools(const ServedModel& model, RequestFields* fields, ChatInput* chat,
               ApiRequest* request);
// The same as OpenAI's Responses API has it, where a function's members are the tool's own.
void ReadToolsOfResponse(const ServedModel& model, RequestFields* fields, ChatInput* chat,
                         ApiRequest* request);
// "tools" alone, as the template is given them.
void ReadToolsOfTemplate(const ServedModel& model, RequestFields* fields, ChatInput* chat);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_TOOL_FIELDS_H_
