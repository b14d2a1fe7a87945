// The functions that a request lets the model call.
#ifndef TANDEM_CHAT_TOOL_FUNCTION_H_
#define TANDEM_CHAT_TOOL_FUNCTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "json/request_fields.h"
#include "tandem/json_value.h"
#include "tandem/tool_calls.h"
#include "tandem/tool_format.h"

namespace tandem {

struct ToolFunction {
  std::string name{};
  std::string field{};     // that has its members: "tools[0].function"
  JsonValue schema{};      // of its arguments, which are an object
  bool is_strict = false;  // they keep to it whenever it is called
};

// How an API writes functions.
enum class ToolForm {
  kNested,  // {"type": "function", "function": {"name": ..., ...}}, as chats
  kFlat,    // {"type": "function", "name": ..., ...}, as OpenAI's Responses API
};

// The member "tools"; empty without it. Errors are remembered by `fields`.
std::vector<ToolFunction> ReadToolFunctions(ToolForm form, RequestFields* fields);
// The same of a list by itself, in the form of chats; null is none. Members that are not known are
// left to the template.
absl::StatusOr<std::vector<ToolFunction>> ToolFunctionsOf(const JsonValue& tools);

// The functions with the parameters whose types the form of calls does not show.
std::vector<CallableFunction> CallablesOf(absl::Span<const ToolFunction> functions,
                                          const ToolFormat& format);

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_FUNCTION_H_
