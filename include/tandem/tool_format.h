#ifndef TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
#define TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tandem/chat_template.h"

namespace tandem {

// A part of a call. Answers are parsed by these parts and constrained to them.
struct CallPart {
  enum class Kind {
    kText,       // `text`; where it has white space, an answer may have more or less
    kMarker,     // `text`, which may be a special token
    kWord,       // `text`, or any other word in an answer
    kName,       // the function's name
    kId,         // text that matches the regular expression `text`
    kArguments,  // a JSON object
    kKey,        // the name of a parameter
    kValue,      // the parameter's value: text without quotes
  };
  Kind kind = Kind::kText;
  std::string_view text{};
  size_t num_optional = 0;  // this many parts, starting with this one, are optional

  // The number of parts of a parameter: a text, kKey, two texts, kValue and a text. A call may have
  // any number of parameters. The line breaks around the value belong to the texts.
  static constexpr size_t kParameterSize = 6;
};

// How a family of models writes function calls in its answers.
struct ToolFormat {
  enum class Family {
    kHermes,        // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, also Qwen's
    kLlama3,        // {"name": "f", "parameters": {...}}, perhaps after <|python_tag|>
    kList,          // [TOOL_CALLS] [{"name": "f", "arguments": {...}}], with its own markers
    kMistralNamed,  // [TOOL_CALLS]f[ARGS]{...}, the next call the same way
    // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>, with line breaks:
    // Qwen3-Coder's; values are unquoted text
    kQwenXml,
    // <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>, with line breaks
    // between: GLM-4.5's; values are unquoted text
    kGlm,
    kDeepSeek,  // a word, a marker, f, and {...} after ```json; or f, a marker and {...}
  };
  static const CallPart kHermesCall[5];

  Family family = Family::kHermes;
  std::string_view begin = "<tool_call>";  // before the calls, or before each call
  std::string_view end = "</tool_call>";   // after each call; empty if there is no end marker
  // The call between these markers. A call that begins with a brace is read as a JSON object with
  // its members in any order.
  absl::Span<const CallPart> call = kHermesCall;
  absl::Span<const CallPart> other_call{};  // another form that models of the family write
  // Markers around all calls; both are optional.
  std::string_view opening{};
  std::string_view closing{};
  // Around and between the calls of kList.
  std::string_view list_begin{};
  std::string_view separator = "\n";
  std::string_view list_end{};
  bool has_call_ids = false;  // models write the optional markers
  // Whether an answer may begin with a call without its markers. This is so if the template does
  // not support tools (include/tandem/generic_tools.h): the model was not trained on any markers.
  bool may_lack_markers = false;

  // The markers of calls. Some may be special tokens.
  std::vector<std::string_view> Markers() const;
  // Whether values are unquoted text, so that only schemas determine their types.
  bool has_plain_values() const { return !Parameter().empty(); }
  // The parts of a parameter; empty if arguments are a JSON object.
  absl::Span<const CallPart> Parameter() const;
  // The text with which each call begins; empty if it begins with another kind of part.
  std::string_view CallBegin() const;
  bool is_json() const { return CallBegin().substr(0, 1) == "{"; }
  // Whether JSON calls may come in a list, with one `begin` before all of them.
  bool may_be_list() const { return family == Family::kList || family == Family::kMistralNamed; }
  // Whether models write calls without `begin` as often as with it.
  bool is_bare() const { return may_lack_markers && end.empty(); }

  // Returns the format that this template implies; Hermes' if it shows none or does not support
  // tools.
  static ToolFormat Of(const ChatTemplate& chat);
  // Returns the first format of a family.
  static ToolFormat Of(Family family);
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
