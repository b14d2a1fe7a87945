// What answers that call functions are held to: structural tags
// (include/tandem/output_constraint.h).
#ifndef TANDEM_CHAT_TOOL_TAGS_H_
#define TANDEM_CHAT_TOOL_TAGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "chat/special_markers.h"
#include "chat/tool_function.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tandem/tool_format.h"

namespace tandem {

// How the calls of one answer are held.
struct ToolTagOptions {
  ToolFormat format{};
  std::vector<SpecialMarker> special{};  // its markers that are special tokens
  bool one_call = false;
};

// A call that the model writes as it was taught to, with arguments that keep to the function's
// schema, or with any. INVALID_ARGUMENT naming the function's parameters for a schema that the form
// of calls cannot keep.
absl::StatusOr<JsonValue> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                                  bool keeps_schema);

// Nothing but calls, of which `tags` has those that may come.
JsonValue RequiredCalls(const ToolTagOptions& options, JsonValue tags);

// Text, and calls of these functions where their beginning comes, the strict ones with arguments
// that keep to their schemas. Errors: CallTag's.
absl::StatusOr<JsonValue> CallsAtWillOf(const ToolTagOptions& options,
                                        absl::Span<const ToolFunction> functions);

// What holds an answer to `tag`, one of the above.
OutputConstraint HoldTo(const ToolTagOptions& options, const JsonValue& tag);

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_TAGS_H_
