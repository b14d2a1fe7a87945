// The functions that a request lets the model call, and what answers that call them are held to:
// structural tags (include/tandem/output_constraint.h).
#ifndef TANDEM_CHAT_TOOL_TAGS_H_
#define TANDEM_CHAT_TOOL_TAGS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "json/request_fields.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/tool_calls.h"
#include "tandem/tool_format.h"
#include "tandem/types.h"

namespace tandem {

// A marker that is a special token, with its id.
using SpecialMarker = std::pair<std::string_view, TokenId>;

// Those among `markers`, of which some may be empty. They must outlive the result.
std::vector<SpecialMarker> SpecialMarkersAmong(absl::Span<const std::string_view> markers,
                                               const Tokenizer& tokenizer);

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

// The arguments of a call whose values are texts without quotes, a structural tag's format
// (include/tandem/output_constraint.h), in the schema's order. `form`: ToolFormat::Parameter().
// A CallReader makes arguments of them that keep to `schema`, an object's. With `is_strict` only
// the parameters that it names are allowed, unless it says otherwise. INVALID_ARGUMENT names a
// keyword or parameter that this format cannot express.
absl::StatusOr<JsonValue> XmlArguments(const JsonValue& schema, bool is_strict,
                                       absl::Span<const CallPart> form);

// The schema that a "$ref" within the document leads to, through further references; `schema`
// itself if it has none. Null if the target does not exist, or the references form a ring.
const JsonValue* Referenced(const JsonValue& schema, const JsonValue& root);

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_TAGS_H_
