// What answers that call functions are held to: structural tags
// (include/tandem/output_constraint.h).
#ifndef TANDEM_CHAT_TOOL_TAGS_H_
#define TANDEM_CHAT_TOOL_TAGS_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "chat/tool_format.h"
#include "chat/tool_function.h"
#include "tandem/json_value.h"
#include "tandem/types.h"

namespace tandem {

// How the calls of one answer are held.
struct ToolTagOptions {
  ToolFormat format{};
  // Those of its markers that are special tokens, with their ids.
  std::vector<std::pair<std::string_view, TokenId>> special{};
  bool one_call = false;
};

// A call that the model writes as it was taught to, with arguments that keep to the function's
// schema, or with any. INVALID_ARGUMENT for a schema that the form of calls cannot keep.
absl::StatusOr<JsonValue> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                                  bool keeps_schema);

// Nothing but calls, of which `tags` has those that may come.
JsonValue RequiredCalls(const ToolTagOptions& options, JsonValue tags);

// Text, and calls where their beginning comes.
JsonValue CallsAtWill(const ToolTagOptions& options, JsonValue tags);

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_TAGS_H_
