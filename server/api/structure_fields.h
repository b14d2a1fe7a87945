// The fields of a request for text that say what the text must be, or is expected to be.
#ifndef TANDEM_SERVER_API_STRUCTURE_FIELDS_H_
#define TANDEM_SERVER_API_STRUCTURE_FIELDS_H_

#include <string>

#include "json/request_fields.h"
#include "tandem/request.h"

namespace tandem {

// "response_format" as OpenAI has it; "structured_outputs" and "guided_*" as vLLM, "json_schema",
// "regex" and "ebnf" as SGLang; at most one of them. Returns the field that was given, empty for
// none.
std::string ReadConstraint(RequestFields* fields, Request* options);
// The same of a request of OpenAI's Responses API, whose "text": {"format": ...} takes the place of
// "response_format".
std::string ReadConstraintOfResponse(RequestFields* fields, Request* options);

// "prediction": {"type": "content", "content": a string or a list of text parts}.
void ReadPrediction(RequestFields* fields, Request* options);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_STRUCTURE_FIELDS_H_
