#ifndef TANDEM_CHAT_TOOL_FUNCTION_H_
#define TANDEM_CHAT_TOOL_FUNCTION_H_

#include <string>

#include "tandem/json_value.h"

namespace tandem {

// A function that a request lets the model call.
struct ToolFunction {
  std::string name;
  JsonValue schema;        // of its arguments, which are an object
  bool is_strict = false;  // they keep to it whenever it is called
};

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_FUNCTION_H_
