// The fields of a chat that have to do with what the model thinks before it answers.
#ifndef TANDEM_SERVER_API_REASONING_FIELDS_H_
#define TANDEM_SERVER_API_REASONING_FIELDS_H_

#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"

namespace tandem {

// Whether reasoning is taken out of the text, and shown. Other servers' names.
struct ReasoningFields {
  bool separate = true;  // "separate_reasoning"
  bool include = true;   // "include_reasoning"
  bool stream = true;    // "stream_reasoning"

  void Read(RequestFields* fields);
};

// Says in `request` how reasoning is found in its answers, and has its constraint hold what follows
// the reasoning. Where markers are special tokens, which constraints cannot have, a constrained
// answer has no reasoning. `request` has its prompt, which is that of `chat`.
void SetReasoning(const ReasoningFields& fields, const ChatInput& chat, const ServedModel& model,
                  ApiRequest* request);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_REASONING_FIELDS_H_
