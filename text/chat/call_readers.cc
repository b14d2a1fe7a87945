#include "text/chat/call_readers.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/string_view.h"
#include "tandem/json_value.h"
#include "tandem/tool_format.h"

namespace tandem {
namespace {

using Json = JsonValue;
using State = CallReader::State;

bool IsSpaceByte(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

bool IsNameByte(char byte) {
  return absl::ascii_isalnum(static_cast<unsigned char>(byte)) || byte == '_' || byte == '-' ||
         byte == '.';
}

std::string QuotedJson(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Appends one byte of a JSON string. Only ASCII characters are escaped: the bytes of other
// characters arrive one at a time.
void AppendEscaped(char byte, std::string* json) {
  if (!absl::ascii_isascii(static_cast<unsigned char>(byte))) {
    *json += byte;
    return;
  }
  const std::string quoted = QuotedJson(std::string(1, byte));
  json->append(quoted, 1, quoted.size() - 2);
}

// Translates Python's True, False and None to JSON: templates write values in Python's spelling.
absl::string_view AsJsonWord(absl::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  return text == "None" ? "null" : text;
}

// Returns the JSON of a value that was written without quotes. It is a string unless the text is
// JSON of one of `types`.
std::string JsonOfText(const std::string& text, JsonTypes types) {
  const absl::string_view word = AsJsonWord(absl::StripAsciiWhitespace(text));
  const Json value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  const bool is_json =
      !value.is_discarded() && !value.is_string() && types.Has(JsonTypes::Of(value));
  return is_json ? std::string(word) : QuotedJson(text);
}

// Finds the end of a JSON string, array or object.
class JsonSpan {
 public:
  // REQUIRES: the last call, if any, returned kOpen.
  State Read(char byte) {
    if (in_string_) {
      const bool ends = byte == '"' && !is_escaped_;
      is_escaped_ = byte == '\\' && !is_escaped_;
      in_string_ = !ends;
      return ends && open_.empty() ? State::kDone : State::kOpen;
    }
    if (byte == '"') {
      in_string_ = true;
    } else if (byte == '{' || byte == '[') {
      open_ += byte;
    } else if (byte == '}' || byte == ']') {
      if (open_.empty() || open_.back() != (byte == '}' ? '{' : '[')) return State::kWrong;
      open_.pop_back();
      if (open_.empty()) return State::kDone;
    }
    return State::kOpen;
  }
  // Whether the bytes so far may continue as a number or a word, such as `true`.
  bool is_flat() const { return open_.empty() && !in_string_; }

 private:
  std::string open_{};  // the open brackets
  bool in_string_ = false;
  bool is_escaped_ = false;
};

// Reads {"name": "f", "arguments": {...}}, starting at the first brace. The key "tool_name" is
// accepted for "name", and "parameters" for "arguments".
class JsonCallReader final : public CallReader {
 public:
  State Read(char byte) override {
    if (place_ == Place::kInValue) return ReadInValue(byte);
    if (place_ == Place::kInKey) {
      if (byte == '"') {
        place_ = Place::kColon;
      } else {
        key_ += byte;
      }
      return byte == '\\' ? State::kWrong : State::kOpen;
    }
    if (IsSpaceByte(byte)) return State::kOpen;
    switch (place_) {
      case Place::kBegin:
        may_end_ = true;
        place_ = Place::kKey;
        return byte == '{' ? State::kOpen : State::kWrong;
      case Place::kKey:
        if (byte == '}' && may_end_) return State::kDone;
        key_.clear();
        place_ = Place::kInKey;
        return byte == '"' ? State::kOpen : State::kWrong;
      case Place::kColon:
        place_ = Place::kValue;
        return byte == ':' ? State::kOpen : State::kWrong;
      case Place::kValue:
        value_.clear();
        span_ = JsonSpan();
        place_ = Place::kInValue;
        if (IsArguments() && (byte != '{' || has_arguments())) return State::kWrong;
        return ReadInValue(byte);
      default:  // kComma
        if (byte == '}') return State::kDone;
        may_end_ = false;
        place_ = Place::kKey;
        return byte == ',' ? State::kOpen : State::kWrong;
    }
  }

 private:
  enum class Place { kBegin, kKey, kInKey, kColon, kValue, kInValue, kComma };

  State ReadInValue(char byte) {
    std::string* const text = IsArguments() ? &arguments_ : &value_;
    // A number or a word ends before the first byte that cannot be part of it.
    const bool ends_word =
        span_.is_flat() && !value_.empty() && (byte == ',' || byte == '}' || IsSpaceByte(byte));
    if (ends_word) return EndMember() == State::kWrong ? State::kWrong : Read(byte);
    *text += byte;
    const State state = span_.Read(byte);
    return state == State::kDone ? EndMember() : state;
  }

  State EndMember() {
    place_ = Place::kComma;
    if (key_ != "name" && key_ != "tool_name") return State::kOpen;
    const auto name = Json::parse(value_, nullptr, /*allow_exceptions=*/false);
    if (!name.is_string()) return State::kWrong;
    name_ = name.get<std::string>();
    return State::kOpen;
  }

  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  Place place_ = Place::kBegin;
  bool may_end_ = false;  // whether '}' is allowed where a key is expected
  JsonSpan span_{};       // the value
  std::string key_{};     // as written, escapes included
  std::string value_{};   // as written; empty for arguments
};

// Reads a call that is not JSON, by the parts of its format. A value without quotes is a string if
// its parameter can only be a string. Otherwise it is read as JSON if it is JSON of a type that the
// parameter allows, and as a string if not.
class PartsCallReader final : public CallReader {
 public:
  PartsCallReader(const ToolFormat& format, const std::vector<CallableFunction>* functions)
      : functions_(functions), other_(format.other_call) {
    Begin(format.call);
  }

  State Read(char byte) override {
    if (!has_arguments()) read_ += byte;
    State state = ReadPart(byte);
    if (state != State::kWrong || has_arguments() || other_.empty()) return state;
    Begin(std::exchange(other_, {}));
    state = State::kOpen;
    for (size_t i = 0; i < read_.size() && state == State::kOpen; ++i) state = ReadPart(read_[i]);
    return state;
  }

 private:
  void Begin(absl::Span<const CallPart> parts) {
    parts_ = parts;
    GoTo(0);
  }

  State GoTo(size_t at) {
    text_.clear();
    for (at_ = at; at_ < parts_.size(); ++at_) {
      const bool is_blank = parts_[at_].kind == CallPart::Kind::kText && Word(at_).empty();
      if (!is_blank) break;
    }
    if (at_ == parts_.size()) {
      if (!key_.empty()) arguments_ += '}';
      return State::kDone;
    }
    if (parts_[at_].kind == CallPart::Kind::kValue) BeginValue();
    return State::kOpen;
  }
  // Goes to the part at `at` and reads its first byte.
  State GoOnTo(size_t at, char byte) {
    const State state = GoTo(at);
    return state == State::kOpen ? ReadPart(byte) : state;
  }

  absl::string_view Word(size_t at) const {
    return absl::StripAsciiWhitespace(View(parts_[at].text));
  }
  bool MayBeginInSpace(size_t at) const {
    const std::string_view text = parts_[at].text;
    return (!text.empty() && IsSpaceByte(text.front())) || (at > 0 && EndsInSpace(at - 1));
  }
  bool EndsInSpace(size_t at) const {
    return !parts_[at].text.empty() && IsSpaceByte(parts_[at].text.back());
  }

  State ReadPart(char byte) {
    switch (parts_[at_].kind) {
      case CallPart::Kind::kText:
      case CallPart::Kind::kMarker:
        return ReadText(byte);
      case CallPart::Kind::kWord:
      case CallPart::Kind::kName:
        return ReadName(byte);
      case CallPart::Kind::kId:
        return IsNameByte(byte) ? State::kOpen : GoOnTo(at_ + 1, byte);
      case CallPart::Kind::kArguments: {
        if (!has_arguments() && byte != '{')
          return IsSpaceByte(byte) ? State::kOpen : State::kWrong;
        arguments_ += byte;
        const State state = span_.Read(byte);
        return state == State::kDone ? GoTo(at_ + 1) : state;
      }
      case CallPart::Kind::kKey: {
        text_ += byte;
        absl::string_view key = text_;
        if (!absl::ConsumeSuffix(&key, Word(at_ + 1))) return State::kOpen;
        key_ = std::string(absl::StripAsciiWhitespace(key));
        return GoTo(at_ + 2);
      }
      case CallPart::Kind::kValue:
        return ReadValue(byte) ? GoTo(at_ + 2 - CallPart::kParameterSize) : State::kOpen;
    }
    return State::kWrong;
  }

  State ReadText(char byte) {
    if (text_.empty() && IsSpaceByte(byte) && MayBeginInSpace(at_)) return State::kOpen;
    text_ += byte;
    for (size_t at = at_;; at += parts_[at].num_optional) {
      const CallPart& part = parts_[at];
      if (part.kind != CallPart::Kind::kText && part.kind != CallPart::Kind::kMarker) {
        // All texts before this part are missing, which is an error after an id.
        const bool is_id = at_ > 0 && parts_[at_ - 1].kind == CallPart::Kind::kId;
        const bool may_be = !is_id && text_.size() == 1 && !IsSpaceByte(byte);
        return may_be ? GoOnTo(at, byte) : State::kWrong;
      }
      if (text_ == Word(at)) return GoTo(at + 1);
      if (absl::StartsWith(Word(at), text_)) return State::kOpen;
      if (part.num_optional == 0) return State::kWrong;
    }
  }

  // A name ends at the text after it if that text is required, else at the first character that
  // cannot be part of a name.
  State ReadName(char byte) {
    const bool is_fixed = parts_[at_ + 1].num_optional == 0 && !MayBeginInSpace(at_ + 1);
    if (IsNameByte(byte) || (IsSpaceByte(byte) && (is_fixed || text_.empty()))) {
      text_ += byte;
      return State::kOpen;
    }
    const absl::string_view name = absl::StripAsciiWhitespace(text_);
    if (name.empty()) return State::kWrong;
    if (parts_[at_].kind == CallPart::Kind::kName) name_ = std::string(name);
    return GoOnTo(at_ + 1, byte);
  }

  JsonTypes TypesOf(const std::string& key) const {
    const auto function = absl::c_find_if(
        *functions_, [this](const CallableFunction& f) { return f.name == *name_; });
    if (function == functions_->end()) return JsonTypes();
    const auto types = function->parameters.find(key);
    return types == function->parameters.end() ? JsonTypes() : types->second;
  }

  void BeginValue() {
    absl::StrAppend(&arguments_, has_arguments() ? ", " : "{", QuotedJson(key_), ": ");
    types_ = TypesOf(key_);
    has_breaks_ = EndsInSpace(at_ - 1);
    is_string_ = types_.IsOnly(JsonTypes::kString);
    if (is_string_) arguments_ += '"';
    value_.clear();
    is_first_ = true;
  }

  bool ReadValue(char byte) {
    const absl::string_view end = Word(at_ + 1);
    const bool is_break = has_breaks_ && is_first_ && byte == '\n';
    is_first_ = false;
    if (is_break) return false;
    value_ += byte;
    if (absl::EndsWith(value_, end)) {
      EndValue();
      return true;
    }
    if (!is_string_) return false;
    // Hold back the bytes that may be the beginning of the end: the tag, perhaps after a line
    // break.
    size_t held = std::min(value_.size(), end.size());
    while (held > 0 &&
           !absl::StartsWith(end, absl::string_view(value_).substr(value_.size() - held))) {
      --held;
    }
    const bool is_behind_break =
        has_breaks_ && held < value_.size() && value_[value_.size() - held - 1] == '\n';
    if (is_behind_break) ++held;
    const std::string text = value_.substr(0, value_.size() - held);
    value_.erase(0, text.size());
    for (const char one : text) AppendEscaped(one, &arguments_);
    return false;
  }

  void EndValue() {
    absl::string_view text = value_;
    text.remove_suffix(Word(at_ + 1).size());
    if (has_breaks_) absl::ConsumeSuffix(&text, "\n");
    if (is_string_) {
      for (const char one : text) AppendEscaped(one, &arguments_);
      arguments_ += '"';
    } else {
      arguments_ += JsonOfText(std::string(text), types_);
    }
  }

  const std::vector<CallableFunction>* functions_;
  absl::Span<const CallPart> parts_{};
  absl::Span<const CallPart> other_;  // the parts to try if parts_ do not fit
  std::string read_{};                // the bytes before the arguments
  size_t at_ = 0;                     // index in parts_
  std::string text_{};                // the bytes read of the current part
  JsonSpan span_{};                   // the end of JSON arguments
  std::string key_{};                 // the last parameter's name
  JsonTypes types_{};                 // allowed types of its value
  bool is_string_ = false;            // whether the value is a string, which is streamed
  bool has_breaks_ = false;           // whether the format has line breaks around the value
  std::string value_{};               // the part of the value that is held back
  bool is_first_ = true;              // whether the next byte is the first of a value
};

}  // namespace

std::unique_ptr<CallReader> CallReader::OfJson() { return std::make_unique<JsonCallReader>(); }

std::unique_ptr<CallReader> CallReader::Of(const ToolFormat& format,
                                           const std::vector<CallableFunction>* functions) {
  if (format.is_json()) return OfJson();
  return std::make_unique<PartsCallReader>(format, functions);
}

}  // namespace tandem
