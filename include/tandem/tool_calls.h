// Parses function calls in an answer's text.
#ifndef TANDEM_INCLUDE_TANDEM_TOOL_CALLS_H_
#define TANDEM_INCLUDE_TANDEM_TOOL_CALLS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/answer_delta.h"
#include "tandem/json_types.h"
#include "tandem/json_value.h"
#include "tandem/tool_format.h"

namespace tandem {

class CallReader;

// A function that the model may call.
struct CallableFunction {
  std::string name;
  // Only for formats that do not show which values are strings.
  std::map<std::string, JsonTypes> parameters{};
};

// Returns the functions of `tools`, which has the form of OpenAI's API, [{"type": "function",
// "function": {"name": ..., "parameters": ...}}, ...]; empty for null. INVALID_ARGUMENT names the
// member, the value found and the values allowed. Other members are used only by the template.
absl::StatusOr<std::vector<CallableFunction>> CallableFunctions(const JsonValue& tools,
                                                                const ToolFormat& format);

// Splits an answer's text into content and function calls, however the text is cut into pieces.
// Text that only begins like a call, or calls an unknown function, is content. A call is recognised
// when its name and the first byte of its arguments are known; its arguments are then returned as
// they arrive. Hermes' calls may also come as Markdown, between ```json and ```, as Qwen2.5-Coder
// writes them. White space before calls, and at the end of an answer with calls, is dropped.
// Thread-compatible.
//
//   ToolCallParser parser({.format = ToolFormat::Of(chat), .functions = {{.name = "f"}}});
//   AnswerDelta answer = parser.Push(text);
//   answer.Append(parser.Finish());
class ToolCallParser {
 public:
  struct Options {
    ToolFormat format{};
    std::vector<CallableFunction> functions{};
    bool must_call = false;  // the marker before the calls may then be missing
    bool parallel = true;    // else calls after the first are dropped
  };
  explicit ToolCallParser(Options options);
  ~ToolCallParser();
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  AnswerDelta Push(std::string_view text);
  // Ends the text: returns the part that was held back.
  AnswerDelta Finish();

  int num_calls() const { return num_calls_; }

 private:
  enum class Place {
    kText,   // outside calls
    kOpen,   // after a marker, before the call
    kCall,   // in a call
    kAfter,  // after a call
  };
  // Whether the text since the beginning of a possible marker, followed by `byte`, is a prefix of
  // or equal to one of `markers`. If so, it is held back in marker_. A marker's first byte occurs
  // only once in it (of ```json, only at the beginning), so text that turns out not to be a marker
  // does not contain the beginning of another.
  enum class Match { kNone, kPart, kWhole };
  Match Extend(char byte, absl::Span<const std::string_view> markers);
  void Read(char byte, AnswerDelta* delta);
  void ReadText(char byte, AnswerDelta* delta);
  void ReadOpen(char byte, AnswerDelta* delta);
  void ReadCall(char byte, AnswerDelta* delta);
  void ReadAfter(char byte, AnswerDelta* delta);
  void ReadEnd(char byte, AnswerDelta* delta);
  // Whether JSON calls may come in a list here.
  bool MayBeList() const { return in_fence_ || options_.format.may_be_list(); }
  // Whether a call may begin here without a marker.
  bool MayBeginBare() const;
  // Called after a complete marker that begins calls.
  void OnMarker();
  void BeginCall(char byte);
  // Returns the text that was held back as content.
  void GiveUp(AnswerDelta* delta);
  void GiveUpAndRead(char byte, AnswerDelta* delta);
  void EmitCall(AnswerDelta* delta);

  const Options options_;
  std::string_view call_begin_;               // text that begins a call even without a marker
  std::vector<std::string_view> beginnings_;  // the markers that begin calls
  std::vector<std::string_view> after_;       // the markers that may follow a call
  Place place_ = Place::kText;
  std::string held_{};     // text that may belong to a call
  std::string marker_{};   // the prefix of a marker read so far
  bool in_list_ = false;   // in a list of calls
  bool in_fence_ = false;  // between ```json and ```
  bool has_content_ = false;
  std::unique_ptr<CallReader> reader_{};
  bool is_call_ = false;      // whether reader_ reads a recognised call
  bool is_left_out_ = false;  // whether that call is dropped, because it is not the first
  size_t num_emitted_ = 0;    // bytes of its arguments returned so far
  int num_calls_ = 0;         // calls returned so far
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOOL_CALLS_H_
