#ifndef TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
#define TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_

#include <array>
#include <string_view>
#include <vector>

#include "tandem/chat_template.h"

namespace tandem {

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
  Family family = Family::kHermes;
  std::string_view begin = "<tool_call>";  // in front of calls, or of each call
  std::string_view end = "</tool_call>";   // after each call; empty if it ends without
  std::string_view arguments = "arguments";
  bool has_call_ids = false;  // with an id: [CALL_ID]id in front of [ARGS], or a member of kList's
  // Around all calls; they may lack.
  std::string_view opening{};
  std::string_view closing{};
  // In kList: between the marker and the first call, the calls, the last one and the end.
  std::string_view list_begin = " [";
  std::string_view list_separator = ", ";
  std::string_view list_end = "]";
  std::string_view name = "name";
  bool is_fenced = false;  // kDeepSeek's first form
  // Whether an answer may begin with a call that lacks its markers: where the template has no place
  // for tools (include/tandem/generic_tools.h), the model was taught none.
  bool may_lack_markers = false;

  // What calls are marked with, of which some may be special tokens.
  std::vector<std::string_view> Markers() const {
    std::vector<std::string_view> markers = {begin, end, opening, closing};
    if (family == Family::kMistralNamed) markers = {begin, kArgumentsMarker, kCallIdMarker};
    if (family == Family::kGlm)
      markers.insert(markers.end(), kGlmMarkers.begin(), kGlmMarkers.end());
    if (family == Family::kDeepSeek) markers.push_back(kDeepSeekSeparator);
    return markers;
  }

  // Whether values are texts without quotes, so that their types are known from schemas alone.
  bool has_plain_values() const { return family == Family::kQwenXml || family == Family::kGlm; }

  // The format of a model that was taught by this template; Hermes' if it shows none, or has no
  // place for tools.
  static ToolFormat Of(const ChatTemplate& chat);

  static constexpr std::string_view kArgumentsMarker = "[ARGS]";  // of kMistralNamed
  static constexpr std::string_view kCallIdMarker = "[CALL_ID]";  // and of that
  static constexpr std::array<std::string_view, 4> kGlmMarkers = {"<arg_key>", "</arg_key>",
                                                                  "<arg_value>", "</arg_value>"};
  static constexpr std::string_view kDeepSeekBegin = "<\uff5ctool\u2581calls\u2581begin\uff5c>";
  static constexpr std::string_view kDeepSeekSeparator = "<\uff5ctool\u2581sep\uff5c>";
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOOL_FORMAT_H_
