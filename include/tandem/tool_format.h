#ifndef TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
#define TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tandem/chat_template.h"

namespace tandem {

// A part of a call. Answers are read by these parts, and held to them.
struct CallPart {
  enum class Kind {
    kText,       // `text`; an answer may have more white space, or less, where it has some
    kMarker,     // `text`, which may be a special token
    kWord,       // `text`, for which an answer may have another word
    kName,       // the function's
    kId,         // a text that matches `text`, a regular expression
    kArguments,  // a JSON object
    kKey,        // the name of a parameter
    kValue,      // its value: a text without quotes
  };
  Kind kind = Kind::kText;
  std::string_view text{};
  size_t num_optional = 0;  // as many parts, of which this is the first, may lack

  // A parameter, of which there may be any number: a text, kKey, two texts, kValue and a text. The
  // line breaks around the value belong to the texts.
  static constexpr size_t kParameterSize = 6;
};

// How a family of models writes the calls of functions into its answers.
struct ToolFormat {
  enum class Family {
    kHermes,        // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, also Qwen's
    kLlama3,        // {"name": "f", "parameters": {...}}, perhaps after <|python_tag|>
    kList,          // [TOOL_CALLS] [{"name": "f", "arguments": {...}}], with markers of its own
    kMistralNamed,  // [TOOL_CALLS]f[ARGS]{...}, the next call the same way
    // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>, with line breaks:
    // Qwen3-Coder's, whose values are texts
    kQwenXml,
    // <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>, with line breaks
    // between: GLM-4.5's, whose values are texts
    kGlm,
    kDeepSeek,  // a word, a marker, f, and {...} after ```json; or f, a marker and {...}
  };
  static const CallPart kHermesCall[5];

  Family family = Family::kHermes;
  std::string_view begin = "<tool_call>";  // in front of calls, or of each call
  std::string_view end = "</tool_call>";   // after each call; empty if it ends without
  // A call between them. One that begins with a brace is read as a JSON object, whose members may
  // come in any order.
  absl::Span<const CallPart> call = kHermesCall;
  absl::Span<const CallPart> other_call{};  // in which models of the family write it as well
  // Around all calls; they may lack.
  std::string_view opening{};
  std::string_view closing{};
  // Around and between the calls of kList.
  std::string_view list_begin{};
  std::string_view separator = "\n";
  std::string_view list_end{};
  bool has_call_ids = false;  // models write markers that may lack
  // Whether an answer may begin with a call that lacks its markers: where the template has no place
  // for tools (include/tandem/generic_tools.h), the model was taught none.
  bool may_lack_markers = false;

  // What calls are marked with, of which some may be special tokens.
  std::vector<std::string_view> Markers() const;
  // Whether values are texts without quotes, so that their types are known from schemas alone.
  bool has_plain_values() const { return !Parameter().empty(); }
  // How one of these is written; empty without them.
  absl::Span<const CallPart> Parameter() const;
  // The text that each call begins with; empty if it begins with something else.
  std::string_view CallBegin() const;
  bool is_json() const { return CallBegin().substr(0, 1) == "{"; }
  // Whether calls in JSON may come in a list, in which `begin` stands in front of all of them.
  bool may_be_list() const { return family == Family::kList || family == Family::kMistralNamed; }
  // Whether models write calls without `begin` as often as with it.
  bool is_bare() const { return may_lack_markers && end.empty(); }

  // The format of a model that was taught by this template; Hermes' if it shows none, or has no
  // place for tools.
  static ToolFormat Of(const ChatTemplate& chat);
  // The first of a family's formats.
  static ToolFormat Of(Family family);
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
