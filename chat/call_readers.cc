#include "chat/call_readers.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"
#include "tandem/json_value.h"
#include "tandem/tool_format.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr absl::string_view kFunction = "<function=";
constexpr absl::string_view kParameter = "<parameter=";
constexpr absl::string_view kFunctionEnd = "</function>";

bool IsSpaceByte(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

bool IsNameByte(char byte) {
  return absl::ascii_isalnum(static_cast<unsigned char>(byte)) || byte == '_' || byte == '-' ||
         byte == '.';
}

std::string QuotedJson(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// One byte of a JSON string. Only what is ASCII is escaped; bytes of other characters come one by
// one.
void AppendEscaped(char byte, std::string* json) {
  if (!absl::ascii_isascii(static_cast<unsigned char>(byte))) {
    *json += byte;
    return;
  }
  const std::string quoted = QuotedJson(std::string(1, byte));
  json->append(quoted, 1, quoted.size() - 2);
}

// Python's words for what JSON has others for: templates write values with them.
absl::string_view AsJsonWord(absl::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  return text == "None" ? "null" : text;
}

// A value that was written as a text.
std::string JsonOfText(const std::string& text, JsonTypes types) {
  const absl::string_view word = AsJsonWord(absl::StripAsciiWhitespace(text));
  const Json value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  const bool is_json =
      !value.is_discarded() && !value.is_string() && types.Has(JsonTypes::Of(value));
  return is_json ? std::string(word) : QuotedJson(text);
}

}  // namespace

CallReader::State JsonSpan::Read(char byte) {
  using State = CallReader::State;
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

// ---- {"name": ..., "arguments": ...} ----

CallReader::State JsonCallReader::Read(char byte) {
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

CallReader::State JsonCallReader::ReadInValue(char byte) {
  std::string* const text = IsArguments() ? &arguments_ : &value_;
  // A number or a word ends in front of what cannot be part of it.
  const bool ends_word =
      span_.is_flat() && !value_.empty() && (byte == ',' || byte == '}' || IsSpaceByte(byte));
  if (ends_word) return EndMember() == State::kWrong ? State::kWrong : Read(byte);
  *text += byte;
  const State state = span_.Read(byte);
  return state == State::kDone ? EndMember() : state;
}

CallReader::State JsonCallReader::EndMember() {
  place_ = Place::kComma;
  if (key_ != "name" && key_ != "tool_name") return State::kOpen;
  const auto name = Json::parse(value_, nullptr, /*allow_exceptions=*/false);
  if (!name.is_string()) return State::kWrong;
  name_ = name.get<std::string>();
  return State::kOpen;
}

// ---- f[ARGS]{...} ----

CallReader::State NamedCallReader::Read(char byte) {
  if (place_ == Place::kArguments) return ReadArguments(byte);
  if (!marker_.empty() || byte == '[') return ReadMarker(byte);
  if (place_ == Place::kId) return IsNameByte(byte) ? State::kOpen : State::kWrong;
  if (byte == '{') {
    name_ = text_;
    place_ = Place::kArguments;
    return ReadArguments(byte);
  }
  text_ += byte;
  return IsNameByte(byte) ? State::kOpen : State::kWrong;
}

CallReader::State NamedCallReader::ReadMarker(char byte) {
  const absl::string_view args = View(ToolFormat::kArgumentsMarker);
  const absl::string_view call_id = View(ToolFormat::kCallIdMarker);
  marker_ += byte;
  if (marker_ == args) {
    name_ = text_;
    place_ = Place::kArguments;
  } else if (marker_ == call_id && place_ == Place::kName) {
    marker_.clear();
    place_ = Place::kId;
  } else if (!absl::StartsWith(args, marker_) && !absl::StartsWith(call_id, marker_)) {
    return State::kWrong;
  }
  return State::kOpen;
}

CallReader::State NamedCallReader::ReadArguments(char byte) {
  if (!has_arguments()) {
    if (IsSpaceByte(byte)) return State::kOpen;
    if (byte != '{') return State::kWrong;
  }
  arguments_ += byte;
  return span_.Read(byte);
}

// ---- DeepSeek's ----

CallReader::State DeepSeekCallReader::Read(char byte) {
  constexpr absl::string_view kFence = "```json";
  constexpr absl::string_view kLastFence = "```";
  const absl::string_view separator = View(ToolFormat::kDeepSeekSeparator);
  switch (place_) {
    case Place::kWord: {
      text_ += byte;
      const size_t marker = text_.find(separator[0]);
      if (marker == std::string::npos) {
        return IsNameByte(byte) || IsSpaceByte(byte) ? State::kOpen : State::kWrong;
      }
      const absl::string_view begun = absl::string_view(text_).substr(marker);
      if (!absl::StartsWith(separator, begun)) return State::kWrong;
      if (begun != separator) return State::kOpen;
      word_ = std::string(absl::StripAsciiWhitespace(text_.substr(0, marker)));
      text_.clear();
      place_ = Place::kBehindSeparator;
      return State::kOpen;
    }
    case Place::kBehindSeparator:
      if (IsSpaceByte(byte)) return State::kOpen;
      if (byte == '{') name_ = word_;
      place_ = byte == '{' ? Place::kArguments : Place::kName;
      return Read(byte);
    case Place::kName:
      if (IsNameByte(byte)) {
        text_ += byte;
        return State::kOpen;
      }
      name_ = text_;
      text_.clear();
      is_fenced_ = true;
      place_ = Place::kFence;
      return byte == '\n' ? State::kOpen : State::kWrong;
    case Place::kFence:
      if (IsSpaceByte(byte) && (text_.empty() || text_ == kFence)) return State::kOpen;
      if (text_ == kFence && byte == '{') {
        place_ = Place::kArguments;
        return Read(byte);
      }
      text_ += byte;
      return absl::StartsWith(kFence, text_) ? State::kOpen : State::kWrong;
    case Place::kArguments: {
      arguments_ += byte;
      const State state = span_.Read(byte);
      if (state != State::kDone || !is_fenced_) return state;
      text_.clear();
      place_ = Place::kLastFence;
      return State::kOpen;
    }
    default:  // kLastFence
      if (IsSpaceByte(byte) && text_.empty()) return State::kOpen;
      text_ += byte;
      if (text_ == kLastFence) return State::kDone;
      return absl::StartsWith(kLastFence, text_) ? State::kOpen : State::kWrong;
  }
}

// ---- Values without quotes ----

JsonTypes TextCallReader::TypesOf(const std::string& key) const {
  const auto function =
      absl::c_find_if(*functions_, [this](const CallableFunction& f) { return f.name == *name_; });
  if (function == functions_->end()) return JsonTypes();
  const auto types = function->parameters.find(key);
  return types == function->parameters.end() ? JsonTypes() : types->second;
}

void TextCallReader::BeginValue(const std::string& key) {
  absl::StrAppend(&arguments_, has_arguments() ? ", " : "{", QuotedJson(key), ": ");
  types_ = TypesOf(key);
  is_string_ = types_.IsOnly(JsonTypes::kString);
  if (is_string_) arguments_ += '"';
  value_.clear();
  is_first_ = true;
}

bool TextCallReader::ReadValue(char byte) {
  const absl::string_view end = View(form_.value_end);
  const bool is_break = form_.has_breaks && is_first_ && byte == '\n';
  is_first_ = false;
  if (is_break) return false;
  value_ += byte;
  if (absl::EndsWith(value_, end)) {
    EndValue();
    return true;
  }
  if (!is_string_) return false;
  // Held back is what may be the end: of a line break and the tag, or of the tag alone.
  size_t held = std::min(value_.size(), end.size());
  while (held > 0 &&
         !absl::StartsWith(end, absl::string_view(value_).substr(value_.size() - held))) {
    --held;
  }
  const bool is_behind_break =
      form_.has_breaks && held < value_.size() && value_[value_.size() - held - 1] == '\n';
  if (is_behind_break) ++held;
  const std::string text = value_.substr(0, value_.size() - held);
  value_.erase(0, text.size());
  for (const char one : text) AppendEscaped(one, &arguments_);
  return false;
}

void TextCallReader::EndValue() {
  absl::string_view text = value_;
  text.remove_suffix(form_.value_end.size());
  if (form_.has_breaks) absl::ConsumeSuffix(&text, "\n");
  if (is_string_) {
    for (const char one : text) AppendEscaped(one, &arguments_);
    arguments_ += '"';
  } else {
    arguments_ += JsonOfText(std::string(text), types_);
  }
}

// ---- <function=f><parameter=a>1</parameter></function> ----

XmlCallReader::XmlCallReader(const std::vector<CallableFunction>* functions)
    : TextCallReader(functions, {.value_end = "</parameter>", .has_breaks = true}) {}

CallReader::State XmlCallReader::Read(char byte) {
  switch (place_) {
    case Place::kTag:
      return ReadTag(byte);
    case Place::kName:
      if (byte == '>') {
        name_ = std::string(absl::StripAsciiWhitespace(tag_));
        tag_.clear();
        place_ = Place::kTag;
      } else {
        tag_ += byte;
      }
      return State::kOpen;
    case Place::kKey:
      if (byte == '>') {
        BeginValue(key_);
        place_ = Place::kValue;
      } else {
        key_ += byte;
      }
      return State::kOpen;
    default:  // kValue
      if (ReadValue(byte)) place_ = Place::kTag;
      return State::kOpen;
  }
}

CallReader::State XmlCallReader::ReadTag(char byte) {
  if (tag_.empty() && IsSpaceByte(byte)) return State::kOpen;
  tag_ += byte;
  const absl::string_view opening = name_.has_value() ? kParameter : kFunction;
  if (tag_ == opening) {
    tag_.clear();
    key_.clear();
    place_ = name_.has_value() ? Place::kKey : Place::kName;
    return State::kOpen;
  }
  if (name_.has_value() && tag_ == kFunctionEnd) {
    if (has_arguments()) arguments_ += '}';
    return State::kDone;
  }
  const bool may_be = absl::StartsWith(opening, tag_) ||
                      (name_.has_value() && absl::StartsWith(kFunctionEnd, tag_));
  return may_be ? State::kOpen : State::kWrong;
}

// ---- f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call> ----

GlmCallReader::GlmCallReader(const std::vector<CallableFunction>* functions)
    : TextCallReader(functions, {.value_end = "</arg_value>", .has_breaks = false}) {}

CallReader::State GlmCallReader::Read(char byte) {
  constexpr absl::string_view kKeyEnd = "</arg_key>";
  switch (place_) {
    case Place::kName:
      if (IsNameByte(byte)) {
        text_ += byte;
        return State::kOpen;
      }
      if (!IsSpaceByte(byte) && byte != '<') return State::kWrong;
      name_ = std::move(text_);
      text_.clear();
      place_ = Place::kTag;
      return Read(byte);
    case Place::kTag:
      return ReadTag(byte, "<arg_key>", "</tool_call>");
    case Place::kKey:
      text_ += byte;
      if (!absl::EndsWith(text_, kKeyEnd)) return State::kOpen;
      key_ = std::string(absl::StripAsciiWhitespace(absl::StripSuffix(text_, kKeyEnd)));
      text_.clear();
      place_ = Place::kBehindKey;
      return State::kOpen;
    case Place::kBehindKey:
      return ReadTag(byte, "<arg_value>", "");
    default:  // kValue
      if (ReadValue(byte)) place_ = Place::kTag;
      return State::kOpen;
  }
}

CallReader::State GlmCallReader::ReadTag(char byte, std::string_view tag, std::string_view other) {
  if (text_.empty() && IsSpaceByte(byte)) return State::kOpen;
  text_ += byte;
  if (text_ == View(tag)) {
    text_.clear();
    const bool is_of_key = place_ == Place::kTag;
    place_ = is_of_key ? Place::kKey : Place::kValue;
    if (!is_of_key) BeginValue(key_);
    return State::kOpen;
  }
  if (text_ == View(other)) {
    if (has_arguments()) arguments_ += '}';
    return State::kDone;
  }
  const bool may_be = absl::StartsWith(View(tag), text_) || absl::StartsWith(View(other), text_);
  return may_be ? State::kOpen : State::kWrong;
}

}  // namespace tandem
