#ifndef TANDEM_SERVER_XML_ARGUMENTS_H_
#define TANDEM_SERVER_XML_ARGUMENTS_H_

#include "absl/status/statusor.h"
#include "model/formats/json_value.h"

namespace tandem {

// The arguments of a call as Qwen3-Coder writes them, a structural tag's format
// (model/constraint/output_constraint.h):
//
//   <parameter=city>
//   Paris
//   </parameter>
//
// each in its line, in the schema's order. What XmlCallReader makes of them keeps to `schema`,
// which is of an object. With `is_strict` there are no parameters but those that it names, unless
// it says otherwise. INVALID_ARGUMENT naming the keyword, or the parameter, for what cannot be held
// so.
absl::StatusOr<JsonValue> XmlArguments(const JsonValue& schema, bool is_strict);

}  // namespace tandem

#endif  // TANDEM_SERVER_XML_ARGUMENTS_H_
