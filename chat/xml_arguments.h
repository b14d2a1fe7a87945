#ifndef TANDEM_CHAT_XML_ARGUMENTS_H_
#define TANDEM_CHAT_XML_ARGUMENTS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/json_value.h"
#include "tandem/tool_format.h"

namespace tandem {

// The arguments of a call whose values are texts without quotes, a structural tag's format
// (include/tandem/output_constraint.h), in the schema's order. `form`: ToolFormat::Parameter().
// What a CallReader makes of them keeps to `schema`, which is of an object. With `is_strict` there
// are no parameters but those that it names, unless it says otherwise. INVALID_ARGUMENT naming the
// keyword, or the parameter, for what cannot be held so.
absl::StatusOr<JsonValue> XmlArguments(const JsonValue& schema, bool is_strict,
                                       absl::Span<const CallPart> form);

}  // namespace tandem

#endif  // TANDEM_CHAT_XML_ARGUMENTS_H_
