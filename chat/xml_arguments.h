#ifndef TANDEM_CHAT_XML_ARGUMENTS_H_
#define TANDEM_CHAT_XML_ARGUMENTS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"

namespace tandem {

// What stands around the values of a call whose values are texts without quotes:
// `begin` name `middle` value `end`.
struct PlainValueForm {
  std::string_view begin;
  std::string_view middle;
  std::string_view end;
  std::string_view excluded;  // what `end` holds, and no value does
};

//   <parameter=city>
//   Paris
//   </parameter>
inline constexpr PlainValueForm kQwenXmlForm = {
    .begin = "<parameter=", .middle = ">\n", .end = "\n</parameter>\n", .excluded = "</parameter>"};
//   <arg_key>city</arg_key>
//   <arg_value>Paris</arg_value>
inline constexpr PlainValueForm kGlmForm = {.begin = "<arg_key>",
                                            .middle = "</arg_key>\n<arg_value>",
                                            .end = "</arg_value>\n",
                                            .excluded = "</arg_value>"};

// The arguments of a call in such a form, a structural tag's format
// (include/tandem/output_constraint.h), in the schema's order. What XmlCallReader or
// GlmCallReader makes of them keeps to `schema`, which is of an object. With `is_strict` there are
// no parameters but those that it names, unless it says otherwise. INVALID_ARGUMENT naming the
// keyword, or the parameter, for what cannot be held so.
absl::StatusOr<JsonValue> XmlArguments(const JsonValue& schema, bool is_strict,
                                       const PlainValueForm& form);

}  // namespace tandem

#endif  // TANDEM_CHAT_XML_ARGUMENTS_H_
