// The calls of functions in an answer's text.
#ifndef TANDEM_CHAT_TOOL_CALLS_H_
#define TANDEM_CHAT_TOOL_CALLS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "chat/answer_delta.h"
#include "chat/call_readers.h"
#include "chat/tool_format.h"

namespace tandem {

// Takes an answer's text apart, however it is cut into pieces: what the model says, and the calls
// of functions that it makes. What only begins as a call, or calls what there is not, is content.
// From where its name and the first byte of its arguments are known a call is one, and its
// arguments are let out as they come. White space in front of calls, and at the end of an answer
// that has some, is left out. Thread-compatible.
class ToolCallParser {
 public:
  struct Options {
    ToolFormat format{};
    std::vector<CallableFunction> functions{};  // that there are
    bool must_call = false;                     // then what stands in front of calls may lack
    bool parallel = true;                       // else calls behind the first are left out
  };
  explicit ToolCallParser(Options options);
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  AnswerDelta Push(std::string_view text);
  // At the end of the text: what was held back.
  AnswerDelta Finish();

  int num_calls() const { return num_calls_; }

 private:
  enum class Place {
    kText,    // outside calls
    kOpen,    // in front of a call, behind its marker
    kCall,    // in it
    kBehind,  // behind it
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
  void ReadBehind(char byte, AnswerDelta* delta);
  void ReadEnd(char byte, AnswerDelta* delta);
  bool MayBeList() const;
  // Whether calls without a marker may come.
  bool MayBeginBare() const;
  // Behind the whole of one that calls begin with.
  void OnMarker();
  // Whether a call may begin with `byte` where kOpen is; then reads it.
  bool MayBegin(char byte) const;
  void BeginCall(char byte);
  // What was held back is content after all.
  void GiveUp(AnswerDelta* delta);
  void GiveUpAndRead(char byte, AnswerDelta* delta);
  void LetOutCall(AnswerDelta* delta);

  const Options options_;
  std::vector<std::string_view> beginnings_;  // the markers of calls
  std::vector<std::string_view> behind_;      // those that may stand behind a call
  Place place_ = Place::kText;
  std::string held_{};    // text that may belong to a call
  std::string marker_{};  // the part of a marker that has come
  bool in_list_ = false;  // of calls
  bool has_said_ = false;
  std::unique_ptr<CallReader> reader_{};
  bool is_call_ = false;      // what reader_ reads
  bool is_left_out_ = false;  // and that is behind the first
  size_t num_let_out_ = 0;    // bytes of its arguments
  int num_calls_ = 0;         // that were let out
};

}  // namespace tandem

#endif  // TANDEM_CHAT_TOOL_CALLS_H_
