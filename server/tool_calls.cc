#include "server/tool_calls.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/string_view.h"
#include "model/formats/json_value.h"

namespace tandem {
namespace {

bool IsSpace(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

}  // namespace

// ---- One call ----

CallReader::State CallReader::Read(char byte) {
  if (place_ == Place::kInValue) return ReadInValue(byte);
  if (place_ == Place::kInKey) {
    if (byte == '"') {
      place_ = Place::kColon;
    } else {
      key_ += byte;
    }
    return byte == '\\' ? State::kWrong : State::kOpen;
  }
  if (IsSpace(byte)) return State::kOpen;
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

CallReader::State CallReader::ReadInValue(char byte) {
  std::string* const text = IsArguments() ? &arguments_ : &value_;
  // A number or a word ends in front of what cannot be part of it.
  const bool ends_word = !in_string_ && open_.empty() && !value_.empty() &&
                         (byte == ',' || byte == '}' || IsSpace(byte));
  if (ends_word) return EndMember() == State::kWrong ? State::kWrong : Read(byte);
  *text += byte;
  if (in_string_) {
    const bool ends = byte == '"' && !is_escaped_;
    is_escaped_ = byte == '\\' && !is_escaped_;
    in_string_ = !ends;
    return ends && open_.empty() ? EndMember() : State::kOpen;
  }
  if (byte == '"') {
    in_string_ = true;
  } else if (byte == '{' || byte == '[') {
    open_ += byte;
  } else if (byte == '}' || byte == ']') {
    if (open_.empty() || open_.back() != (byte == '}' ? '{' : '[')) return State::kWrong;
    open_.pop_back();
    if (open_.empty()) return EndMember();
  }
  return State::kOpen;
}

CallReader::State CallReader::EndMember() {
  place_ = Place::kComma;
  if (key_ != "name") return State::kOpen;
  const auto name = JsonValue::parse(value_, nullptr, /*allow_exceptions=*/false);
  if (!name.is_string()) return State::kWrong;
  name_ = name.get<std::string>();
  return State::kOpen;
}

// ---- The whole text ----

AnswerDelta ToolCallParser::Push(std::string_view text) {
  AnswerDelta delta;
  for (const char byte : text) Read(byte, &delta);
  return delta;
}

AnswerDelta ToolCallParser::Finish() {
  AnswerDelta delta;
  const bool is_between =
      num_calls_ > 0 && marker_.empty() && !absl::StrContains(held_, View(options_.format.begin));
  const bool is_of_calls = (place_ == Place::kCall && is_call_) || place_ == Place::kBehind ||
                           (place_ != Place::kCall && is_between);
  if (!is_of_calls) GiveUp(&delta);
  held_.clear();
  return delta;
}

void ToolCallParser::Read(char byte, AnswerDelta* delta) {
  switch (place_) {
    case Place::kText:
      return ReadText(byte, delta);
    case Place::kOpen:
      return ReadOpen(byte, delta);
    case Place::kCall:
      return ReadCall(byte, delta);
    case Place::kBehind:
      return ReadBehind(byte, delta);
  }
}

bool ToolCallParser::MayBeginBare() const {
  if (has_said_ || num_calls_ > 0) return false;
  const ToolFormat::Family family = options_.format.family;
  return family == ToolFormat::Family::kLlama3 ||
         (family == ToolFormat::Family::kMistral && options_.must_call);
}

// The first byte of a marker occurs in it but once: what fails to be one holds no other's
// beginning.
void ToolCallParser::ReadText(char byte, AnswerDelta* delta) {
  const std::string_view begin = options_.format.begin;
  if (marker_.empty() && IsSpace(byte)) {
    held_ += byte;
  } else if (byte == begin[marker_.size()]) {
    held_ += byte;
    marker_ += byte;
    if (marker_ != begin) return;
    marker_.clear();
    place_ = Place::kOpen;
  } else if (marker_ == "[" && MayBeginBare()) {
    marker_.clear();
    in_list_ = true;
    place_ = Place::kOpen;
    ReadOpen(byte, delta);
  } else if (!marker_.empty()) {
    GiveUpAndRead(byte, delta);
  } else if (byte == '{' && MayBeginBare()) {
    ReadOpen(byte, delta);
  } else {
    held_ += byte;
    GiveUp(delta);
  }
}

void ToolCallParser::ReadOpen(char byte, AnswerDelta* delta) {
  const bool is_mistral = options_.format.family == ToolFormat::Family::kMistral;
  if (byte == '{') {
    reader_.emplace();
    is_call_ = false;
    num_let_out_ = 0;
    place_ = Place::kCall;
    ReadCall(byte, delta);
  } else if (IsSpace(byte)) {
    held_ += byte;
  } else if (byte == '[' && is_mistral && !in_list_) {
    held_ += byte;
    in_list_ = true;
  } else {
    GiveUpAndRead(byte, delta);
  }
}

void ToolCallParser::ReadCall(char byte, AnswerDelta* delta) {
  const CallReader::State state = reader_->Read(byte);
  if (state == CallReader::State::kWrong) return GiveUpAndRead(byte, delta);
  const bool is_done = state == CallReader::State::kDone;
  if (!is_call_) {
    held_ += byte;
    const std::optional<std::string>& name = reader_->name();
    if (name.has_value() && (is_done || reader_->has_arguments())) {
      is_call_ = absl::c_linear_search(options_.names, *name);
      if (!is_call_) return GiveUp(delta);
      held_.clear();
      is_left_out_ = num_calls_ > 0 && !options_.parallel;
      if (!is_left_out_) delta->calls.push_back({.index = num_calls_++, .name = *name});
    } else if (is_done) {
      return GiveUp(delta);
    }
  }
  if (is_call_ && !is_left_out_) LetOutCall(delta);
  if (!is_done) return;
  if (!reader_->has_arguments() && !is_left_out_) delta->calls.back().arguments = "{}";
  place_ = Place::kBehind;
}

void ToolCallParser::LetOutCall(AnswerDelta* delta) {
  const std::string& arguments = reader_->arguments();
  if (num_let_out_ == arguments.size()) return;
  const int index = num_calls_ - 1;
  if (delta->calls.empty() || delta->calls.back().index != index) {
    delta->calls.push_back({.index = index});
  }
  delta->calls.back().arguments.append(arguments, num_let_out_);
  num_let_out_ = arguments.size();
}

void ToolCallParser::ReadBehind(char byte, AnswerDelta* delta) {
  const ToolFormat& format = options_.format;
  if (marker_.empty() && IsSpace(byte)) {
    held_ += byte;
  } else if (format.family == ToolFormat::Family::kHermes) {
    if (byte != format.end[marker_.size()]) return GiveUpAndRead(byte, delta);
    held_ += byte;
    marker_ += byte;
    if (marker_ != format.end) return;
    marker_.clear();
    held_.clear();
    place_ = Place::kText;
  } else if (in_list_ && byte == ']') {
    held_.clear();
    in_list_ = false;
    place_ = Place::kText;
  } else if (in_list_
                 ? byte == ','
                 : format.family == ToolFormat::Family::kLlama3 && (byte == ';' || byte == ',')) {
    held_ += byte;
    place_ = Place::kOpen;
  } else if (byte == '{' && format.family == ToolFormat::Family::kLlama3) {
    ReadOpen(byte, delta);
  } else {
    place_ = Place::kText;  // held white space may stand in front of another marker
    in_list_ = false;
    ReadText(byte, delta);
  }
}

void ToolCallParser::GiveUp(AnswerDelta* delta) {
  delta->content += held_;
  has_said_ = has_said_ || !absl::c_all_of(held_, IsSpace);
  held_.clear();
  marker_.clear();
  in_list_ = false;
  place_ = Place::kText;
}

void ToolCallParser::GiveUpAndRead(char byte, AnswerDelta* delta) {
  GiveUp(delta);
  ReadText(byte, delta);
}

}  // namespace tandem
