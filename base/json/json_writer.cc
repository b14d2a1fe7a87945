#include "base/json/json_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

// Returns whether the string needs no escapes in JSON. Most strings do not.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return ' ' <= c && c <= '~' && c != '"' && c != '\\'; });
}

}  // namespace

std::string DumpJson(const JsonValue& value) {
  return value.dump(-1, ' ', false, JsonValue::error_handler_t::replace);
}

void JsonWriter::Separate() {
  if (!std::exchange(is_first_, false)) *text_ += ',';
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Separate();
  *text_ += bracket;
  is_first_ = true;
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  *text_ += bracket;
  is_first_ = false;
  return *this;
}

void JsonWriter::AppendString(std::string_view text) {
  if (!IsPlain(text)) {
    *text_ += DumpJson(text);
    return;
  }
  *text_ += '"';
  *text_ += text;
  *text_ += '"';
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Separate();
  AppendString(name);
  *text_ += ':';
  is_first_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Separate();
  AppendString(text);
  return *this;
}

JsonWriter& JsonWriter::Integer(int64_t number) {
  Separate();
  absl::StrAppend(text_, number);
  return *this;
}

JsonWriter& JsonWriter::Number(double number) {
  if (!std::isfinite(number)) return Null();
  Separate();
  char digits[32];  // at most 24: a sign, 17 digits, a point and "e-308"
  const std::to_chars_result end = std::to_chars(std::begin(digits), std::end(digits), number);
  text_->append(digits, end.ptr);
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Separate();
  *text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::Value(const JsonValue& value) {
  Separate();
  *text_ += DumpJson(value);
  return *this;
}

}  // namespace tandem
