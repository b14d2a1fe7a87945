// The functions of a request that the model may call, and the structural tags
// (include/tandem/output_constraint.h) that constrain answers which call them.
#ifndef TANDEM_TEXT_CHAT_TOOL_TAGS_H_
#define TANDEM_TEXT_CHAT_TOOL_TAGS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/json/request_fields.h"
#include "tandem/json_value.h"
#include "tandem/output_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/tool_calls.h"
#include "tandem/tool_format.h"
#include "tandem/types.h"

namespace tandem {

// A marker that is a special token, with its id.
using SpecialMarker = std::pair<std::string_view, TokenId>;

// Returns those of `markers` that are special tokens. Empty markers are ignored. The texts must
// outlive the result.
std::vector<SpecialMarker> SpecialMarkersAmong(absl::Span<const std::string_view> markers,
                                               const Tokenizer& tokenizer);

struct ToolFunction {
  std::string name{};
  std::string field{};     // the field with its members, such as "tools[0].function"
  JsonValue schema{};      // schema of its arguments, which are an object
  bool is_strict = false;  // whether all calls must follow the schema
};

// How an API writes functions.
enum class ToolForm {
  kNested,  // {"type": "function", "function": {"name": ..., ...}}, as in OpenAI's Chat API
  kFlat,    // {"type": "function", "name": ..., ...}, as in OpenAI's Responses API
};

// Reads the member "tools"; empty if it is absent. Errors are recorded in `fields`.
std::vector<ToolFunction> ReadToolFunctions(ToolForm form, RequestFields* fields);
// Reads a list of functions in the form kNested; null is an empty list. Unknown members are
// ignored: the template may read them.
absl::StatusOr<std::vector<ToolFunction>> ToolFunctionsOf(const JsonValue& tools);

// Returns the functions, with the types of their parameters if the format writes values without
// quotes.
std::vector<CallableFunction> CallablesOf(absl::Span<const ToolFunction> functions,
                                          const ToolFormat& format);

// How the calls of one answer are constrained.
struct ToolTagOptions {
  ToolFormat format{};
  std::vector<SpecialMarker> special{};  // the format's markers that are special tokens
  bool one_call = false;                 // whether the answer may have only one call
};

// Returns the tag of a call in the model's format. The arguments follow the function's schema, or
// are any object without `keeps_schema`. INVALID_ARGUMENT names the function's parameters if the
// format cannot express the schema.
absl::StatusOr<JsonValue> CallTag(const ToolTagOptions& options, const ToolFunction& function,
                                  bool keeps_schema);

// Returns the tag of an answer that consists of calls only. `tags` are the tags of allowed calls.
JsonValue RequiredCalls(const ToolTagOptions& options, JsonValue tags);

// Returns the tag of an answer with any text and any calls of these functions. Arguments of strict
// functions follow their schemas. Errors are those of CallTag.
absl::StatusOr<JsonValue> OptionalCallsTag(const ToolTagOptions& options,
                                           absl::Span<const ToolFunction> functions);

// Returns the constraint that makes an answer match `tag`, which comes from one of the functions
// above.
OutputConstraint ConstraintFor(const ToolTagOptions& options, const JsonValue& tag);

// Returns the arguments of a call whose values are texts without quotes, as the format of a
// structural tag (include/tandem/output_constraint.h). Parameters come in the schema's order.
// `form` is ToolFormat::Parameter(). A CallReader makes arguments of them that follow `schema`,
// which describes an object. With `is_strict`, only the parameters that it names are allowed,
// unless it says otherwise. INVALID_ARGUMENT names a keyword or parameter that this format cannot
// express.
absl::StatusOr<JsonValue> XmlArguments(const JsonValue& schema, bool is_strict,
                                       absl::Span<const CallPart> form);

// Follows the "$ref" of `schema` within the document `root`, and further ones. Returns `schema`
// itself if it has no "$ref", and null if the target does not exist or the references form a cycle.
const JsonValue* Referenced(const JsonValue& schema, const JsonValue& root);

}  // namespace tandem

#endif  // TANDEM_TEXT_CHAT_TOOL_TAGS_H_
