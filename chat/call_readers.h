// The forms that calls of functions have within an answer's text, each read byte by byte.
#ifndef TANDEM_CHAT_CALL_READERS_H_
#define TANDEM_CHAT_CALL_READERS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/json_types.h"
#include "tandem/tool_calls.h"

namespace tandem {

// One call. Thread-compatible.
class CallReader {
 public:
  enum class State { kOpen, kDone, kWrong };
  virtual ~CallReader() = default;
  // REQUIRES: it is kOpen.
  virtual State Read(char byte) = 0;

  // Known once it has ended.
  const std::optional<std::string>& name() const { return name_; }
  // A JSON object, as far as it has come.
  const std::string& arguments() const { return arguments_; }
  bool has_arguments() const { return !arguments_.empty(); }

 protected:
  std::optional<std::string> name_{};
  std::string arguments_{};
};

// Finds the end of a string, an array or an object.
class JsonSpan {
 public:
  // REQUIRES: it is kOpen.
  CallReader::State Read(char byte);
  // Whether what was read may go on as a number or a word.
  bool is_flat() const { return open_.empty() && !in_string_; }

 private:
  std::string open_{};  // brackets
  bool in_string_ = false;
  bool is_escaped_ = false;
};

// {"name": "f", "arguments": {...}}, from the first brace. The name may be called "tool_name", and
// arguments "parameters", as well.
class JsonCallReader final : public CallReader {
 public:
  State Read(char byte) override;

 private:
  enum class Place { kBegin, kKey, kInKey, kColon, kValue, kInValue, kComma };

  State ReadInValue(char byte);
  State EndMember();
  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  Place place_ = Place::kBegin;
  bool may_end_ = false;  // the object, where a key may come
  JsonSpan span_{};       // the value
  std::string key_{};     // as it is written
  std::string value_{};   // likewise; of arguments, nothing
};

// f[ARGS]{...}, from the name on; [CALL_ID] with an id may stand in front of [ARGS], and [ARGS] may
// lack.
class NamedCallReader final : public CallReader {
 public:
  State Read(char byte) override;

 private:
  enum class Place { kName, kId, kArguments };

  State ReadMarker(char byte);
  State ReadArguments(char byte);

  Place place_ = Place::kName;
  std::string text_{};    // of the name
  std::string marker_{};  // the part of a marker that has come
  JsonSpan span_{};
};

// DeepSeek's, from behind the marker of a call's beginning: a word, the separator, the name, a line
// break and the arguments between ```json and ```; or the name, the separator and the arguments.
class DeepSeekCallReader final : public CallReader {
 public:
  State Read(char byte) override;

 private:
  enum class Place { kWord, kBehindSeparator, kName, kFence, kArguments, kLastFence };

  Place place_ = Place::kWord;
  std::string text_{};  // of the place
  std::string word_{};
  bool is_fenced_ = false;
  JsonSpan span_{};
};

// A call whose values are texts without quotes. A value is a string where its parameter may only be
// one, else what its JSON says, if that is of a type that the parameter may have, else a string.
class TextCallReader : public CallReader {
 protected:
  // What stands behind a value, and whether a line break on each side of it belongs to the form.
  struct Form {
    std::string_view value_end;
    bool has_breaks;
  };
  // `functions` must outlive it.
  TextCallReader(const std::vector<CallableFunction>* functions, Form form)
      : functions_(functions), form_(form) {}

  void BeginValue(const std::string& key);
  // Whether `byte` is the last of what stands behind the value.
  bool ReadValue(char byte);

 private:
  JsonTypes TypesOf(const std::string& key) const;
  void EndValue();

  const std::vector<CallableFunction>* functions_;
  const Form form_;
  JsonTypes types_{};       // of the value
  bool is_string_ = false;  // the value, which is then let out as it comes
  std::string value_{};     // what of it is held back
  bool is_first_ = true;    // byte of a value
};

// <function=f><parameter=a>1</parameter></function>, from the first bracket. Line breaks around
// values are left out, one on each side.
class XmlCallReader final : public TextCallReader {
 public:
  // `functions` must outlive it.
  explicit XmlCallReader(const std::vector<CallableFunction>* functions);
  State Read(char byte) override;

 private:
  enum class Place { kTag, kName, kKey, kValue };

  State ReadTag(char byte);

  Place place_ = Place::kTag;
  std::string tag_{};  // that has begun
  std::string key_{};
};

// GLM-4.5's, from the name to the end of the marker behind the call:
// f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>, with white space between.
class GlmCallReader final : public TextCallReader {
 public:
  // `functions` must outlive it.
  explicit GlmCallReader(const std::vector<CallableFunction>* functions);
  State Read(char byte) override;

 private:
  enum class Place { kName, kTag, kKey, kBehindKey, kValue };

  // A tag that is one of two; the second may be empty.
  State ReadTag(char byte, std::string_view tag, std::string_view other);

  Place place_ = Place::kName;
  std::string text_{};  // of the place
  std::string key_{};
};

}  // namespace tandem

#endif  // TANDEM_CHAT_CALL_READERS_H_
