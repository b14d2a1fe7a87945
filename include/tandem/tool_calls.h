// The calls of functions in an answer's text.
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
  std::map<std::string, JsonTypes> parameters{};  // where the form does not show what is a string
};

// The functions of `tools` as OpenAI's API has them, [{"type": "function", "function": {"name":
// ..., "parameters": ...}}, ...]; none for null. INVALID_ARGUMENT names the member, the value
// found and the values allowed. Further members are for the template alone.
absl::StatusOr<std::vector<CallableFunction>> CallableFunctions(const JsonValue& tools,
                                                                const ToolFormat& format);

// Takes an answer's text apart, however it is cut into pieces: content, and the calls that the
// model makes. Text that only begins as a call, or that calls an unknown function, is content. A
// call counts once its name and the first byte of its arguments are known; its arguments are then
// let out as they come. White space before calls, and at the end of an answer with calls, is left
// out. Thread-compatible.
//
//   ToolCallParser parser({.format = ToolFormat::Of(chat), .functions = {{.name = "f"}}});
//   AnswerDelta answer = parser.Push(text);
//   answer.Append(parser.Finish());
class ToolCallParser {
 public:
  struct Options {
    ToolFormat format{};
    std::vector<CallableFunction> functions{};
    bool must_call = false;  // then the marker before the calls may be missing
    bool parallel = true;    // else calls after the first are left out
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
    kOpen,   // after a marker, before its call
    kCall,   // in it
    kAfter,  // after it
  };
  // Whether the text that came since a marker's beginning, and then `byte`, is a part or the whole
  // of one of `markers`, in which case it is held and in marker_. The first byte of a marker occurs
  // in it but once: what fails to be one holds no other's beginning.
  enum class Match { kNone, kPart, kWhole };
  Match Extend(char byte, absl::Span<const std::string_view> markers);
  void Read(char byte, AnswerDelta* delta);
  void ReadText(char byte, AnswerDelta* delta);
  void ReadOpen(char byte, AnswerDelta* delta);
  void ReadCall(char byte, AnswerDelta* delta);
  void ReadAfter(char byte, AnswerDelta* delta);
  void ReadEnd(char byte, AnswerDelta* delta);
  // Whether calls without a marker may come.
  bool MayBeginBare() const;
  // After a whole marker that calls begin with.
  void OnMarker();
  void BeginCall(char byte);
  // The text that was held back is content after all.
  void GiveUp(AnswerDelta* delta);
  void GiveUpAndRead(char byte, AnswerDelta* delta);
  void LetOutCall(AnswerDelta* delta);

  const Options options_;
  std::string_view call_begin_;               // the text that needs no marker in front of it
  std::vector<std::string_view> beginnings_;  // the markers of calls
  std::vector<std::string_view> after_;       // those that may follow a call
  Place place_ = Place::kText;
  std::string held_{};    // text that may belong to a call
  std::string marker_{};  // the part of a marker that has come
  bool in_list_ = false;  // of calls
  bool has_said_ = false;
  std::unique_ptr<CallReader> reader_{};
  bool is_call_ = false;      // what reader_ reads
  bool is_left_out_ = false;  // and that comes after the first
  size_t num_let_out_ = 0;    // bytes of its arguments
  int num_calls_ = 0;         // that were let out
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOOL_CALLS_H_
