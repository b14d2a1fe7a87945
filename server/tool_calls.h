// The calls of functions in an answer's text.
#ifndef TANDEM_SERVER_TOOL_CALLS_H_
#define TANDEM_SERVER_TOOL_CALLS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/tool_format.h"

namespace tandem {

// What a part of an answer's text adds to the answer.
struct AnswerDelta {
  struct Call {
    int index = 0;
    std::string name{};  // of a call that begins here, else empty
    std::string arguments{};
  };
  std::string content{};
  std::vector<Call> calls{};

  bool empty() const { return content.empty() && calls.empty(); }
};

// Reads the members of one call, {"name": "f", "arguments": {...}}, byte by byte. Arguments may be
// called "parameters" as well.
class CallReader {
 public:
  enum class State { kOpen, kDone, kWrong };
  // REQUIRES: it is kOpen. The first byte is the object's brace.
  State Read(char byte);

  // Known once the member has ended.
  const std::optional<std::string>& name() const { return name_; }
  // As far as they have come, which must be an object.
  const std::string& arguments() const { return arguments_; }
  bool has_arguments() const { return !arguments_.empty(); }

 private:
  enum class Place { kBegin, kKey, kInKey, kColon, kValue, kInValue, kComma };

  State ReadInValue(char byte);
  State EndMember();
  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  Place place_ = Place::kBegin;
  bool may_end_ = false;     // the object, where a key may come
  bool in_string_ = false;   // within the value
  bool is_escaped_ = false;  // in a string
  std::string open_{};       // brackets within the value
  std::string key_{};        // as it is written
  std::string value_{};      // likewise; of arguments, nothing
  std::string arguments_{};
  std::optional<std::string> name_{};
};

// Takes an answer's text apart, however it is cut into pieces: what the model says, and the calls
// of functions that it makes. What only begins as a call, or calls what there is not, is content.
// From where its name and the first byte of its arguments are known a call is one, and its
// arguments are let out as they come. White space in front of calls, and at the end of an answer
// that has some, is left out. Thread-compatible.
class ToolCallParser {
 public:
  struct Options {
    ToolFormat format{};
    std::vector<std::string> names{};  // of the functions that there are
    bool must_call = false;            // then what stands in front of calls may lack
    bool parallel = true;              // else calls behind the first are left out
  };
  explicit ToolCallParser(Options options) : options_(std::move(options)) {}

  AnswerDelta Push(std::string_view text);
  // At the end of the text: what was held back.
  AnswerDelta Finish();

  int num_calls() const { return num_calls_; }

 private:
  enum class Place {
    kText,    // outside calls
    kOpen,    // in front of a call's object
    kCall,    // in it
    kBehind,  // behind it
  };
  void Read(char byte, AnswerDelta* delta);
  void ReadText(char byte, AnswerDelta* delta);
  void ReadOpen(char byte, AnswerDelta* delta);
  void ReadCall(char byte, AnswerDelta* delta);
  void ReadBehind(char byte, AnswerDelta* delta);
  // Whether calls without a marker may come.
  bool MayBeginBare() const;
  // What was held back is content after all.
  void GiveUp(AnswerDelta* delta);
  void GiveUpAndRead(char byte, AnswerDelta* delta);
  void LetOutCall(AnswerDelta* delta);

  const Options options_;
  Place place_ = Place::kText;
  std::string held_{};    // text that may belong to a call
  std::string marker_{};  // the part of a marker that has come
  bool in_list_ = false;  // of Mistral's calls
  bool has_said_ = false;
  std::optional<CallReader> reader_{};
  bool is_call_ = false;      // what reader_ reads
  bool is_left_out_ = false;  // and that is behind the first
  size_t num_let_out_ = 0;    // bytes of its arguments
  int num_calls_ = 0;         // that were let out
};

}  // namespace tandem

#endif  // TANDEM_SERVER_TOOL_CALLS_H_
