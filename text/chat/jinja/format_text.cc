#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/text_tools.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxDigits = 100;  // largest precision of a number

// The format of one value.
struct Field {
  std::string fill = " ";
  char align = '\0';  // one of < > ^ =; '\0' for the type's default
  char sign = '\0';   // one of + - and space; '\0' if absent
  bool is_alternate = false;
  bool has_zeros = false;
  char grouping = '\0';  // a comma or an underscore; '\0' if absent
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

// Removes a number from the front of `text` and returns it; 0 without digits.
absl::StatusOr<int64_t> TakeNumber(std::string_view* text) {
  size_t size = 0;
  while (size < text->size() && IsAsciiDigit((*text)[size])) ++size;
  int64_t number = 0;
  if (size > 0 && !absl::SimpleAtoi(View(text->substr(0, size)), &number)) {
    return Wrong("found a width of more than 64 bits in a format");
  }
  text->remove_prefix(size);
  return number;
}

std::string Grouped(const std::string& number, char separator) {
  const size_t start = number[0] == '-' || number[0] == '+' || number[0] == ' ' ? 1 : 0;
  const size_t end = std::min(number.find_first_not_of("0123456789", start), number.size());
  std::string out = number.substr(0, start);
  for (size_t i = start; i < number.size(); ++i) {
    if (i > start && i < end && (end - i) % 3 == 0) out.push_back(separator);
    out.push_back(number[i]);
  }
  return out;
}

absl::StatusOr<std::string> NumberText(const Value& value, const Field& field) {
  const bool is_integer = value.is_integer();
  std::string text;
  switch (field.type) {
    case '\0':
      if (!is_integer && field.precision.has_value()) {
        text = tandem::Format("%.*g", static_cast<int>(*field.precision), value.number());
      } else {
        text = is_integer ? absl::StrCat(value.integer()) : FloatText(value.number());
      }
      break;
    case 'd':
    case 'i':
    case 'u':
      if (!is_integer && !(std::abs(value.number()) < 9e18)) {
        return Wrong("found a number of more than 64 bits in a format");
      }
      text = absl::StrCat(is_integer ? value.integer() : static_cast<int64_t>(value.number()));
      break;
    case 'x':
    case 'X':
    case 'o':
    case 'b': {
      if (!is_integer) return Wrong("found a float, allowed for this type of format: an integer");
      const int64_t number = value.integer();
      auto left = number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
      const uint64_t base = field.type == 'o' ? 8 : field.type == 'b' ? 2 : 16;
      const char* digits = field.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
      do {
        text.insert(text.begin(), digits[left % base]);
        left /= base;
      } while (left > 0);
      if (field.is_alternate) text.insert(0, {'0', field.type});
      if (number < 0) text.insert(text.begin(), '-');
      break;
    }
    case 'f':
    case 'F':
    case 'E':
    case 'G':
    case 'e':
    case 'g': {
      using Floats = absl::ParsedFormat<'*', absl::FormatConversionCharSet::kFloating>;
      const char type = field.type == 'F' ? 'f' : field.type;
      text = tandem::Format(*Floats::New(absl::StrCat("%.*", std::string(1, type))),
                            static_cast<int>(field.precision.value_or(6)), value.number());
      break;
    }
    case '%':
      text = tandem::Format("%.*f%%", static_cast<int>(field.precision.value_or(6)),
                            value.number() * 100);
      break;
    default:
      return absl::UnimplementedError(absl::StrCat("found the type ", std::string(1, field.type),
                                                   " in a format, allowed: s d x o b f e g %"));
  }
  const bool has_prefix = std::string_view("xXob").find(field.type) != std::string_view::npos;
  if (field.is_alternate && !is_integer) {
    return absl::UnimplementedError("found # in a float's format, allowed: formats without it");
  }
  const bool pads_groups = field.grouping != '\0' && field.has_zeros;
  if (field.grouping != '\0' && (has_prefix || pads_groups)) {
    return absl::UnimplementedError(
        "found groups of digits in a format with zeros or another base, allowed: without them");
  }
  const bool shows_sign = field.sign == '+' || field.sign == ' ';
  if (shows_sign && text[0] != '-') text.insert(text.begin(), field.sign);
  return field.grouping != '\0' ? Grouped(text, field.grouping) : text;
}

// Pads the text before it, after it or on both sides, or with `=` after its sign and prefix.
absl::StatusOr<MarkedText> Padded(Runtime* runtime, const MarkedText& text, const Field& field,
                                  char usual_align) {
  const MarkedText fill(field.fill, kOwn);
  const char align = field.align == '\0' ? usual_align : field.align;
  size_t sign_size = 0;
  if (align == '=') {
    const std::string& bytes = text.text();
    sign_size = bytes.find_first_of("+- ") == 0 ? 1 : 0;
    if (field.is_alternate) sign_size += 2;
  }
  MarkedText out = text.Slice(0, sign_size);
  MarkedText rest = text.Slice(sign_size, text.size());
  const int64_t size = static_cast<int64_t>(NumCharacters(rest.text()));
  const int64_t width = std::max<int64_t>(field.width - static_cast<int64_t>(sign_size), size);
  const int64_t left_width = align == '<' ? size : align == '^' ? size + (width - size) / 2 : width;
  ASSIGN_OR_RETURN(const Value left,
                   PadText(runtime, rest, left_width, fill, {.left = true, .right = false}));
  ASSIGN_OR_RETURN(const Value both,
                   PadText(runtime, *left.text(), width, fill, {.left = false, .right = true}));
  out.Append(*both.text());
  return out;
}

absl::StatusOr<MarkedText> Formatted(Runtime* runtime, const Value& value, const Field& field,
                                     char align_of_text) {
  if (field.precision.value_or(0) > kMaxDigits && value.is_number()) {
    return Wrong("found a precision of ", *field.precision, " in a format, allowed: ", "at most ",
                 kMaxDigits);
  }
  const bool is_text =
      field.type == 's' || field.type == 'r' || (field.type == '\0' && !value.is_number());
  if (!is_text) {
    if (value.is_undefined()) return Wrong(value.what());
    if (!value.is_number()) {
      return Wrong("found a ", value.type_name(), " where the format needs a number");
    }
    ASSIGN_OR_RETURN(const std::string number, NumberText(value, field));
    return Padded(runtime, MarkedText(number, kOwn), field, field.has_zeros ? '=' : '>');
  }
  ASSIGN_OR_RETURN(MarkedText text,
                   field.type == 'r' ? ToRepr(runtime, value) : ToText(runtime, value));
  if (field.precision.has_value()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(sizeof(size_t) * text.size()));
    const std::vector<size_t> offsets = CharacterOffsets(text.text());
    const auto most = static_cast<size_t>(*field.precision);
    if (most + 1 < offsets.size()) text = text.Slice(0, offsets[most]);
  }
  return Padded(runtime, text, field, align_of_text);
}

// ---- str.format ----

absl::StatusOr<Field> ParseSpec(std::string_view spec) {
  constexpr std::string_view kAligns = "<>^=";
  Field field;
  const size_t first_size = spec.empty() ? 0 : ReadUtf8(spec).size;
  const bool has_fill = spec.size() > first_size && kAligns.find(spec[first_size]) != kAligns.npos;
  if (has_fill) {
    field.fill = spec.substr(0, first_size);
    field.align = spec[first_size];
    spec.remove_prefix(first_size + 1);
  } else if (!spec.empty() && kAligns.find(spec[0]) != kAligns.npos) {
    field.align = spec[0];
    spec.remove_prefix(1);
  }
  const auto take = [&spec](char c) {
    if (spec.empty() || spec[0] != c) return false;
    spec.remove_prefix(1);
    return true;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (take(sign)) field.sign = sign;
  }
  field.is_alternate = take('#');
  field.has_zeros = take('0');
  if (field.has_zeros && !has_fill) field.fill = "0";
  ASSIGN_OR_RETURN(field.width, TakeNumber(&spec));
  for (const char separator : {',', '_'}) {
    if (take(separator)) field.grouping = separator;
  }
  if (take('.')) {
    ASSIGN_OR_RETURN(field.precision, TakeNumber(&spec));
  }
  if (!spec.empty()) {
    field.type = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty()) {
    return absl::UnimplementedError(
        "found a format that is not [[fill]align][sign][#][0][width][grouping][.precision][type]");
  }
  return field;
}

// INVALID_ARGUMENT if the format is not allowed for values of this type.
absl::Status CheckSpec(const Value& value, const Field& field) {
  const auto is_one_of = [&](std::string_view types) {
    return field.type != '\0' && types.find(field.type) != types.npos;
  };
  bool fits = false;
  if (value.text() != nullptr) {
    const bool is_numeric = field.sign != '\0' || field.is_alternate || field.grouping != '\0';
    fits = !is_numeric && field.align != '=' && (field.type == '\0' || field.type == 's');
  } else if (value.is_float()) {
    fits = !is_one_of("sdxXobcr");
  } else if (value.is_integer()) {
    fits = !is_one_of("sr") &&
           !(field.precision.has_value() && (field.type == '\0' || is_one_of("dxXob")));
  }
  if (fits) return absl::OkStatus();
  return Wrong("a ", value.type_name(), " has no such format");
}

// Finds the value of a field: by number, by name, or, without either, the next value.
struct FieldCount {
  size_t next = 0;
  bool has_numbers = false;
};
absl::StatusOr<Value> ValueOf(std::string_view name, const Arguments& arguments,
                              FieldCount* count) {
  size_t index = count->next;
  if (name.empty()) {
    ++count->next;
  } else if (!absl::SimpleAtoi(View(name), &index)) {
    for (const auto& [given, value] : arguments.named) {
      if (given == name) return value;
    }
    return Wrong("the format's field ", Quoted(View(name)), " has no value");
  } else {
    count->has_numbers = true;
  }
  if (count->has_numbers && count->next > 0) {
    return Wrong("some of the format's fields have numbers and others do not");
  }
  if (index < arguments.positional.size()) return arguments[index];
  return Wrong("the format's field ", index, " has no value");
}

// ---- % ----

class PercentFormatter {
 public:
  PercentFormatter(Runtime* runtime, const MarkedText& format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {
    const List* list = values.list();
    is_tuple_ = list != nullptr && list->kind == List::Kind::kTuple;
  }

  absl::StatusOr<Value> Run() {
    const std::string_view text = format_.text();
    RETURN_IF_ERROR(runtime_->ChargeBytes(text.size()));
    for (;;) {
      const size_t percent = std::min(text.find('%', at_), text.size());
      out_.Append(format_, at_, percent);
      if (percent == text.size()) break;
      at_ = percent + 1;
      RETURN_IF_ERROR(WriteField());
    }
    const size_t num_given = is_tuple_ ? values_.list()->items.size() : 1;
    if (next_ < num_given && values_.dict() == nullptr) {
      return Wrong("the format has fewer fields than values");
    }
    return Value::Text(std::move(out_));
  }

 private:
  absl::StatusOr<Value> NextValue() {
    const size_t index = next_++;
    if (!is_tuple_ && index == 0) return values_;
    if (is_tuple_ && index < values_.list()->items.size()) return values_.list()->items[index];
    return Wrong("the format has more fields than values");
  }

  absl::Status WriteField() {
    const std::string& text = format_.text();
    std::optional<Value> named;
    if (at_ < text.size() && text[at_] == '(') {
      const size_t end = text.find(')', at_);
      if (end == std::string::npos || values_.dict() == nullptr) {
        return Wrong("a format with names needs a dictionary");
      }
      const std::string name = text.substr(at_ + 1, end - at_ - 1);
      const Value* found = values_.dict()->Find(std::string_view(name));
      if (found == nullptr) return Wrong("the format's field ", Quoted(name), " has no value");
      named = *found;
      at_ = end + 1;
    }
    Field field;
    for (; at_ < text.size() && std::string_view("-+ 0#").find(text[at_]) != std::string::npos;
         ++at_) {
      if (text[at_] == '-') field.align = '<';
      if (text[at_] == '+') field.sign = '+';
      if (text[at_] == ' ' && field.sign == '\0') field.sign = ' ';
      if (text[at_] == '#') field.is_alternate = true;
      if (text[at_] == '0') field.has_zeros = true;
    }
    std::string_view rest = std::string_view(text).substr(at_);
    ASSIGN_OR_RETURN(field.width, TakeNumber(&rest));
    if (rest.starts_with(".")) {
      rest.remove_prefix(1);
      ASSIGN_OR_RETURN(field.precision, TakeNumber(&rest));
    }
    if (rest.empty()) return Wrong("the format ends within a % field");
    field.type = rest[0];
    at_ = text.size() - rest.size() + 1;
    if (field.type == '%') {
      out_.Append(format_, at_ - 1, at_);
      return absl::OkStatus();
    }
    Value value;
    if (named.has_value()) {
      value = *named;
    } else {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    if (field.type == 'b') return Wrong("found the type b in a format, allowed: s d x o f e g %");
    const bool is_text = field.type == 's' || field.type == 'r';
    if (field.has_zeros && !is_text && field.align == '\0') field.fill = "0";
    if (!is_text && value.is_none()) return Wrong("found none where the format needs a number");
    ASSIGN_OR_RETURN(const MarkedText formatted, Formatted(runtime_, value, field, '>'));
    out_.Append(formatted);
    return absl::OkStatus();
  }

  Runtime* const runtime_;
  const MarkedText& format_;
  const Value& values_;
  bool is_tuple_ = false;
  size_t next_ = 0;
  size_t at_ = 0;
  MarkedText out_;
};

}  // namespace

absl::StatusOr<Value> PadText(Runtime* runtime, const MarkedText& text, int64_t width,
                              const MarkedText& fill, Sides sides) {
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  const auto size = static_cast<int64_t>(NumCharacters(text.text()));
  const int64_t missing = std::max<int64_t>(width - size, 0);
  RETURN_IF_ERROR(runtime->Charge(static_cast<size_t>(missing)));
  RETURN_IF_ERROR(runtime->ChargeBytes(static_cast<size_t>(missing) * fill.size()));
  int64_t left = sides.left ? missing : 0;
  if (sides.left && sides.right) left = missing / 2 + (missing & width & 1);
  MarkedText out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return Value::Text(std::move(out));
}

absl::StatusOr<Value> FormatBraces(Runtime* runtime, const MarkedText& format,
                                   const Arguments& arguments) {
  const std::string_view text = format.text();
  MarkedText out;
  FieldCount count;
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.Append(format, at, brace);
    at = brace;
    if (at == text.size()) break;
    if (at + 1 < text.size() && text[at + 1] == text[at]) {
      out.Append(format, at, at + 1);
      at += 2;
      continue;
    }
    const size_t end = text.find('}', at);
    if (text[at] == '}' || end == text.npos) return Wrong("found a single brace in a format");
    std::string_view field = text.substr(at + 1, end - at - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    const std::string_view given_spec = field.substr(std::min(colon + 1, field.size()));
    ASSIGN_OR_RETURN(Field spec, ParseSpec(given_spec));
    const bool is_repr = name.ends_with("!r");
    const bool is_converted = is_repr || name.ends_with("!s");
    if (is_converted) name.remove_suffix(2);
    RETURN_IF_ERROR(runtime->Charge(1 + arguments.named.size() / 8));
    ASSIGN_OR_RETURN(Value value, ValueOf(name, arguments, &count));
    if (is_converted || given_spec.empty()) {
      ASSIGN_OR_RETURN(MarkedText shown, is_repr ? ToRepr(runtime, value) : ToText(runtime, value));
      value = Value::Text(std::move(shown));
    }
    RETURN_IF_ERROR(CheckSpec(value, spec));
    ASSIGN_OR_RETURN(const MarkedText formatted, Formatted(runtime, value, spec, '<'));
    out.Append(formatted);
    at = end + 1;
  }
  return Value::Text(std::move(out));
}

absl::StatusOr<Value> FormatPercent(Runtime* runtime, const MarkedText& format,
                                    const Value& values) {
  return PercentFormatter(runtime, format, values).Run();
}

}  // namespace tandem::jinja
