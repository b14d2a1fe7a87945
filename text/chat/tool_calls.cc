#include "tandem/tool_calls.h"

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/string_view.h"
#include "text/chat/call_readers.h"

namespace tandem {
namespace {

constexpr std::string_view kFence = "```json";
constexpr std::string_view kFenceEnd = "```";

bool IsSpace(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

}  // namespace

ToolCallParser::ToolCallParser(Options options)
    : options_(std::move(options)), beginnings_({options_.format.begin}) {
  // Models that write XML sometimes omit the first marker.
  if (!options_.format.is_json()) call_begin_ = options_.format.CallBegin();
  const ToolFormat& format = options_.format;
  for (const std::string_view text : {call_begin_, format.opening, format.closing}) {
    if (!text.empty()) beginnings_.push_back(text);
  }
  if (format.family == ToolFormat::Family::kHermes) beginnings_.push_back(kFence);
  after_ = beginnings_;  // a call's end marker may be missing before the next call
  after_.push_back(options_.format.end);
}

ToolCallParser::~ToolCallParser() = default;

AnswerDelta ToolCallParser::Push(std::string_view text) {
  AnswerDelta delta;
  for (const char byte : text) Read(byte, &delta);
  return delta;
}

AnswerDelta ToolCallParser::Finish() {
  AnswerDelta delta;
  const bool is_between = num_calls_ > 0 && marker_.empty() && !in_fence_ &&
                          !absl::StrContains(held_, View(options_.format.begin));
  const bool is_of_calls = (place_ == Place::kCall && is_call_) || place_ == Place::kAfter ||
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
    case Place::kAfter:
      return ReadAfter(byte, delta);
  }
}

ToolCallParser::Match ToolCallParser::Extend(char byte,
                                             absl::Span<const std::string_view> markers) {
  const size_t size = marker_.size();
  for (const std::string_view marker : markers) {
    const bool goes_on =
        size < marker.size() && marker[size] == byte && absl::StartsWith(View(marker), marker_);
    if (!goes_on) continue;
    held_ += byte;
    marker_ += byte;
    return marker_.size() == marker.size() ? Match::kWhole : Match::kPart;
  }
  return Match::kNone;
}

bool ToolCallParser::MayBeginBare() const {
  if (has_content_ || num_calls_ > 0) return false;
  return options_.format.may_lack_markers || (options_.format.may_be_list() && options_.must_call);
}

void ToolCallParser::OnMarker() {
  const bool is_call = marker_ == View(call_begin_);
  in_fence_ = marker_ == kFence;
  const bool is_around = marker_ == options_.format.opening || marker_ == options_.format.closing;
  marker_.clear();
  if (is_around) {
    if (num_calls_ > 0) held_.clear();
    place_ = Place::kText;
    return;
  }
  place_ = Place::kOpen;
  if (!is_call) return;
  held_.resize(held_.size() - call_begin_.size());
  BeginCall(call_begin_[0]);
  AnswerDelta nothing;
  for (const char byte : call_begin_) ReadCall(byte, &nothing);
}

void ToolCallParser::ReadText(char byte, AnswerDelta* delta) {
  if (marker_.empty() && IsSpace(byte)) {
    held_ += byte;
    return;
  }
  switch (Extend(byte, beginnings_)) {
    case Match::kPart:
      return;
    case Match::kWhole:
      return OnMarker();
    case Match::kNone:
      break;
  }
  if (marker_ == "[" && MayBeginBare()) {
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

void ToolCallParser::BeginCall(char byte) {
  const bool is_json = MayBeList() && (in_list_ || byte == '{');
  reader_ = is_json ? CallReader::OfJson() : CallReader::Of(options_.format, &options_.functions);
  is_call_ = false;
  num_emitted_ = 0;
  place_ = Place::kCall;
}

void ToolCallParser::ReadOpen(char byte, AnswerDelta* delta) {
  if (IsSpace(byte) && marker_.empty()) {
    held_ += byte;
  } else if (byte == '[' && MayBeList() && !in_list_) {
    held_ += byte;
    in_list_ = true;
  } else if (call_begin_.empty()) {
    BeginCall(byte);
    ReadCall(byte, delta);
  } else if (const Match match = Extend(byte, beginnings_); match == Match::kWhole) {
    OnMarker();
  } else if (match == Match::kNone) {
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
      is_call_ = absl::c_any_of(options_.functions,
                                [&](const CallableFunction& f) { return f.name == *name; });
      if (!is_call_) return GiveUp(delta);
      held_.clear();
      is_left_out_ = num_calls_ > 0 && !options_.parallel;
      if (!is_left_out_) delta->calls.push_back({.index = num_calls_++, .name = *name});
    } else if (is_done) {
      return GiveUp(delta);
    }
  }
  if (is_call_ && !is_left_out_) EmitCall(delta);
  if (!is_done) return;
  if (!reader_->has_arguments() && !is_left_out_) delta->calls.back().arguments = "{}";
  place_ = Place::kAfter;
}

void ToolCallParser::EmitCall(AnswerDelta* delta) {
  const std::string& arguments = reader_->arguments();
  if (num_emitted_ == arguments.size()) return;
  const int index = num_calls_ - 1;
  if (delta->calls.empty() || delta->calls.back().index != index) {
    delta->calls.push_back({.index = index});
  }
  delta->calls.back().arguments.append(arguments, num_emitted_);
  num_emitted_ = arguments.size();
}

void ToolCallParser::ReadAfter(char byte, AnswerDelta* delta) {
  const ToolFormat& format = options_.format;
  if (marker_.empty() && IsSpace(byte)) {
    held_ += byte;
  } else if (byte == '{' && marker_.empty() && (format.may_lack_markers || in_fence_)) {
    ReadOpen(byte, delta);
  } else if (!format.end.empty() && !in_list_) {
    ReadEnd(byte, delta);
  } else if (in_list_ && byte == ']') {
    held_.clear();
    in_list_ = false;
    if (!in_fence_) place_ = Place::kText;
  } else if (byte == ',' ? in_list_ || format.is_bare() : byte == ';' && format.is_bare()) {
    held_ += byte;
    place_ = Place::kOpen;
  } else {
    place_ = Place::kText;  // keep held white space: another marker may follow it
    in_list_ = false;
    in_fence_ = false;
    ReadText(byte, delta);
  }
}

void ToolCallParser::ReadEnd(char byte, AnswerDelta* delta) {
  switch (in_fence_ ? Extend(byte, {&kFenceEnd, 1}) : Extend(byte, after_)) {
    case Match::kPart:
      return;
    case Match::kNone:
      return GiveUpAndRead(byte, delta);
    case Match::kWhole:
      break;
  }
  if (!in_fence_ && marker_ != options_.format.end) return OnMarker();
  in_fence_ = false;
  marker_.clear();
  held_.clear();
  place_ = Place::kText;
}

void ToolCallParser::GiveUp(AnswerDelta* delta) {
  delta->content += held_;
  has_content_ = has_content_ || !absl::c_all_of(held_, IsSpace);
  held_.clear();
  marker_.clear();
  in_list_ = false;
  in_fence_ = false;
  place_ = Place::kText;
}

void ToolCallParser::GiveUpAndRead(char byte, AnswerDelta* delta) {
  GiveUp(delta);
  ReadText(byte, delta);
}

}  // namespace tandem
