// Jinja's filters of single values. Those of sequences are in sequence_filters.cc.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/text_tools.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

// Returns the text in lower case ASCII, without surrounding white space. Decimal digits of other
// scripts become ASCII digits, and other characters '?'.
std::string Plain(std::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  std::string plain;
  while (!text.empty()) {
    const Utf8Prefix next = ReadUtf8(text);
    if (next.code_point < 0x80) {
      plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(text[0])));
    } else {
      plain.push_back(static_cast<char>(
          IsDecimalDigit(next.code_point) ? '0' + DecimalDigitOf(next.code_point) : '?'));
    }
    text.remove_prefix(next.size);
  }
  return plain;
}

// Removes underscores. Returns false if an underscore is not between two characters for which
// `is_digit` is true.
template <typename IsDigit>
bool TakeUnderscores(std::string* text, IsDigit is_digit) {
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] != '_') continue;
    const bool is_between =
        i > 0 && i + 1 < text->size() && is_digit((*text)[i - 1]) && is_digit((*text)[i + 1]);
    if (!is_between) return false;
  }
  text->erase(std::remove(text->begin(), text->end(), '_'), text->end());
  return true;
}

int BaseOfPrefix(absl::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') return 10;
  return digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : digits[1] == 'b' ? 2 : 10;
}

// Python's int(text, base): allows surrounding white space, a sign, the base's prefix, single
// underscores and decimal digits of any script. Base 0 means that the prefix gives the base.
// Returns nullopt where Python raises an error, and for numbers of more than 64 bits.
std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  std::string digits = Plain(text);
  const bool has_sign = !digits.empty() && (digits[0] == '-' || digits[0] == '+');
  const std::string sign = has_sign && digits[0] == '-' ? "-" : "";
  if (has_sign) digits.erase(0, 1);
  const int prefix_base = BaseOfPrefix(digits);
  const bool has_prefix = prefix_base != 10 && (base == 0 || base == prefix_base);
  if (has_prefix) {
    digits.erase(0, 2);
    base = prefix_base;
    if (!digits.empty() && digits[0] == '_') digits.erase(0, 1);
  }
  // The function below would accept a second prefix.
  if (base == 16 && BaseOfPrefix(digits) == 16) return std::nullopt;
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  if (!TakeUnderscores(&digits, is_alphanumeric)) return std::nullopt;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_alphanumeric)) {
    return std::nullopt;
  }
  const bool has_zero_in_front = digits[0] == '0' && digits.find_first_not_of('0') != digits.npos;
  if (base == 0 && has_zero_in_front) return std::nullopt;
  int64_t integer = 0;
  const bool is_read = absl::numbers_internal::safe_strto64_base(absl::StrCat(sign, digits),
                                                                 &integer, base == 0 ? 10 : base);
  return is_read ? std::optional<int64_t>(integer) : std::nullopt;
}

// Python's float(text): allows the same as ParseInteger, "inf" and "nan", but only base 10.
std::optional<double> ParseFloat(std::string_view text) {
  std::string digits = Plain(text);
  if (!TakeUnderscores(&digits, IsAsciiDigit)) return std::nullopt;
  // The function below accepts other bases, and "nan(text)". Python does not.
  if (digits.find_first_of("x(") != digits.npos) return std::nullopt;
  double number = 0;
  return absl::SimpleAtod(digits, &number) ? std::optional<double>(number) : std::nullopt;
}

using Result = absl::StatusOr<Value>;

// The size in bytes; 0 unless the value is a string.
size_t SizeOf(const Value& value) { return value.text() == nullptr ? 0 : value.text()->size(); }

Result String(Runtime* runtime, const Value& value, const Arguments&) {
  if (value.text() != nullptr) return value;
  ASSIGN_OR_RETURN(MarkedText text, ToText(runtime, value));
  return Value::Text(std::move(text));
}

// Calls a string method on the value's text.
Result CallTextMethod(Runtime* runtime, std::string_view name, const Value& value,
                      const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value text, String(runtime, value, {}));
  return CallBuiltin(runtime, *FindTextMethod(name), text, arguments);
}

constexpr char kCapitalize[] = "capitalize", kLower[] = "lower", kStrip[] = "strip",
               kUpper[] = "upper";
template <const char* kName>
Result TextMethod(Runtime* runtime, const Value& value, const Arguments& arguments) {
  return CallTextMethod(runtime, kName, value, arguments);
}
Result Center(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments[0], 80, "width"));
  return CallTextMethod(runtime, "center", value, {.positional = {Value::Int(width)}, .named = {}});
}
Result Replace(Runtime* runtime, const Value& value, const Arguments& arguments) {
  Arguments texts = arguments;
  for (Value* argument : {&texts.positional[0], &texts.positional[1]}) {
    ASSIGN_OR_RETURN(*argument, String(runtime, *argument, {}));
  }
  return CallTextMethod(runtime, "replace", value, texts);
}
Result Format(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText format, ToText(runtime, value));
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return Wrong("format takes values by position or by name, not both");
  }
  if (arguments.named.empty()) {
    return FormatPercent(runtime, format, Value::OfList(arguments.positional, List::Kind::kTuple));
  }
  Dict named;
  for (const auto& [name, given] : arguments.named) named.Set(std::string_view(name), given);
  return FormatPercent(runtime, format, Value::OfDict(std::move(named)));
}

// Jinja starts words after white space, hyphens and opening brackets.
Result Title(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(runtime, value));
  RETURN_IF_ERROR(runtime->ChargeBytes(8 * text.size()));
  const std::string_view whole = text.text();
  const auto separates = [](const Utf8Prefix& character) {
    return IsSpace(character.code_point) ||
           std::u32string_view(U"-({[<").find(character.code_point) != std::string_view::npos;
  };
  MarkedText out;
  for (size_t at = 0; at < whole.size();) {
    const Utf8Prefix first = ReadUtf8(whole.substr(at));
    const size_t rest = at + first.size;
    size_t end = rest;
    while (!separates(first) && end < whole.size()) {
      const Utf8Prefix next = ReadUtf8(whole.substr(end));
      if (separates(next)) break;
      end += next.size;
    }
    out.Append(WithCase(text.Slice(at, rest), LetterCase::kUpper));
    out.Append(WithCase(text.Slice(rest, end), LetterCase::kLower));
    at = end;
  }
  return Value::Text(std::move(out));
}

Result Escape(Runtime* runtime, const Value& value, const Arguments&) {
  constexpr std::pair<const char*, const char*> kEntities[] = {
      {"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  ASSIGN_OR_RETURN(MarkedText text, ToText(runtime, value));
  RETURN_IF_ERROR(runtime->ChargeBytes(32 * text.size()));
  for (const auto& [character, entity] : kEntities) {
    text = Replaced(text, character, MarkedText(entity, kOwn), -1);
  }
  return Value::Text(std::move(text));
}

Result Default(Runtime*, const Value& value, const Arguments& arguments) {
  const bool is_missing = value.is_undefined() || (arguments[1].IsTrue() && !value.IsTrue());
  if (!is_missing) return value;
  return arguments[0].is_undefined() ? Value::Own("") : arguments[0];
}

Result Length(Runtime* runtime, const Value& value, const Arguments&) {
  size_t size = 0;
  if (const MarkedText* text = value.text()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(text->size()));
    size = NumCharacters(text->text());
  } else if (value.list() != nullptr && value.list()->kind != List::Kind::kIterator) {
    size = value.list()->items.size();
  } else if (value.dict() != nullptr) {
    size = value.dict()->size();
  } else if (!value.is_undefined()) {
    return Wrong("a ", value.type_name(), " has no length");
  }
  return Value::Int(static_cast<int64_t>(size));
}

Result Int(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * SizeOf(value)));
  const Value otherwise = arguments[0].is_undefined() ? Value::Int(0) : arguments[0];
  ASSIGN_OR_RETURN(const int64_t base, IntegerOr(arguments[1], 10, "base"));
  if (value.is_undefined()) return Wrong(value.what());
  if (value.is_integer()) return Value::Int(value.integer());
  double number = value.is_float() ? value.number() : 0;
  if (const MarkedText* text = value.text()) {
    if (base != 0 && (base < 2 || base > 36)) {
      return Wrong("base is ", base, ", allowed: 0 and 2 to 36");
    }
    if (const auto integer = ParseInteger(text->text(), static_cast<int>(base))) {
      return Value::Int(*integer);
    }
    const std::optional<double> read = ParseFloat(text->text());
    if (!read.has_value()) return otherwise;
    number = *read;
  } else if (!value.is_float()) {
    return otherwise;
  }
  if (!(std::abs(number) < 9e18)) return otherwise;
  return Value::Int(static_cast<int64_t>(number));
}

Result Float(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * SizeOf(value)));
  const Value otherwise = arguments[0].is_undefined() ? Value::Float(0) : arguments[0];
  if (value.is_undefined()) return Wrong(value.what());
  if (value.is_number()) return Value::Float(value.number());
  if (value.text() == nullptr) return otherwise;
  const std::optional<double> number = ParseFloat(value.text()->text());
  return number.has_value() ? Value::Float(*number) : otherwise;
}

absl::Status CheckNumber(const Value& value) {
  if (value.is_number()) return absl::OkStatus();
  return Wrong(value.is_undefined()
                   ? value.what()
                   : absl::StrCat("a ", View(value.type_name()), " is not a number"));
}

Result Abs(Runtime* runtime, const Value& value, const Arguments&) {
  RETURN_IF_ERROR(CheckNumber(value));
  if (value.is_float()) return Value::Float(std::abs(value.number()));
  if (value.integer() >= 0) return Value::Int(value.integer());
  return Calculate(runtime, "-", Value::Int(0), value);
}

// Rounds to a multiple of 10^digits, exactly and with ties to even, as Python does.
Result RoundInteger(int64_t number, int64_t digits) {
  constexpr int64_t kMaxDigits = 18;  // 10^18 is the largest power of ten in 64 bits
  if (digits > kMaxDigits + 1) return Value::Int(0);
  int64_t tenth = 1;  // a tenth of the unit, which is 10^digits
  for (int64_t i = 1; i < digits; ++i) tenth *= 10;
  // Work in tenths of the unit, because a unit of 10^19 does not fit in 64 bits.
  const int64_t last = number / tenth % 10;
  const bool has_rest = number % tenth != 0;
  const int64_t units = number / tenth / 10;
  const int64_t size = std::abs(last);
  const bool is_away = size > 5 || (size == 5 && (has_rest || units % 2 != 0));
  int64_t rounded = units + (is_away ? (number < 0 ? -1 : 1) : 0);
  if (__builtin_mul_overflow(rounded, tenth, &rounded) ||
      __builtin_mul_overflow(rounded, int64_t{10}, &rounded)) {
    return Wrong("found an integer of more than 64 bits");
  }
  return Value::Int(rounded);
}

Result Round(Runtime* runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(CheckNumber(value));
  ASSIGN_OR_RETURN(const int64_t precision, IntegerOr(arguments[0], 0, "precision"));
  std::string method = "common";
  if (!arguments[1].is_undefined()) {
    ASSIGN_OR_RETURN(const MarkedText* given, TextArgument(arguments[1], "method"));
    method = given->text();
  }
  if (precision < -300 || precision > 300) return Wrong("precision must be from -300 to 300");
  const double number = value.number();
  if (method == "common") {
    if (value.is_integer() && precision >= 0) return Value::Int(value.integer());
    if (value.is_integer()) return RoundInteger(value.integer(), -precision);
    if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      return Value::Float(std::nearbyint(number / unit) * unit);
    }
    // Round the decimal digits, as Python does: 2.675 becomes 2.67.
    ASSIGN_OR_RETURN(
        const Value text,
        FormatPercent(runtime,
                      MarkedText(absl::StrCat("%.", std::min<int64_t>(precision, 100), "f"), kOwn),
                      value));
    double rounded = 0;
    if (!absl::SimpleAtod(text.text()->text(), &rounded)) rounded = number;
    return Value::Float(rounded);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::Float(std::ceil(number * unit) / unit);
  if (method == "floor") return Value::Float(std::floor(number * unit) / unit);
  return Wrong("method is ", Quoted(method), ", allowed: common, ceil, floor");
}

// Returns the indentation that `width` gives: a string, a number of spaces, or `otherwise` spaces
// if it is undefined.
absl::StatusOr<std::string> Indentation(Runtime* runtime, const Value& width, int64_t otherwise) {
  if (width.text() != nullptr) return width.text()->text();
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(width, otherwise, "width"));
  const auto size = static_cast<size_t>(std::max<int64_t>(count, 0));
  RETURN_IF_ERROR(runtime->ChargeBytes(size));
  return std::string(size, ' ');
}

Result Indent(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(MarkedText text, ToText(runtime, value));
  ASSIGN_OR_RETURN(const std::string indentation, Indentation(runtime, arguments[0], 4));
  const bool first = arguments[1].IsTrue();
  const bool blank = arguments[2].IsTrue();
  RETURN_IF_ERROR(runtime->Charge(text.size()));
  text.Append("\n", kOwn);  // as Jinja does
  const std::vector<MarkedText> lines =
      SplitLines(text, /*keeps_ends=*/false, runtime->room() / kElementBytes);
  RETURN_IF_ERROR(runtime->CheckRoom(lines.size() * kElementBytes));
  MarkedText out;
  if (first) out.Append(indentation, kOwn);
  for (size_t i = 0; i < lines.size(); ++i) {
    RETURN_IF_ERROR(runtime->ChargeBytes(16 + indentation.size() + lines[i].size()));
    if (i > 0) out.Append("\n", kOwn);
    if (i > 0 && (blank || !lines[i].empty())) out.Append(indentation, kOwn);
    out.Append(lines[i]);
  }
  return Value::Text(std::move(out));
}

// json.dumps with the arguments that transformers passes.
Result Json(Runtime* runtime, const Value& value, const Arguments& arguments) {
  const Value& indent = arguments[1];
  const Value& separators = arguments[2];
  JsonStyle style{.sorts_keys = arguments[3].IsTrue(), .is_ascii = arguments[0].IsTrue()};
  if (!indent.is_undefined() && !indent.is_none()) {
    ASSIGN_OR_RETURN(style.indent, Indentation(runtime, indent, 0));
    style.comma = ",";
  }
  if (!separators.is_undefined() && !separators.is_none()) {
    const List* pair = separators.list();
    if (pair == nullptr || pair->items.size() != 2) return Wrong("separators must be two strings");
    ASSIGN_OR_RETURN(const MarkedText* comma, TextArgument(pair->items[0], "a separator"));
    ASSIGN_OR_RETURN(const MarkedText* colon, TextArgument(pair->items[1], "a separator"));
    RETURN_IF_ERROR(runtime->ChargeBytes(value.extent().weight * (comma->size() + colon->size())));
    style.comma = comma->text();
    style.colon = colon->text();
  }
  ASSIGN_OR_RETURN(MarkedText text, ToJson(runtime, value, style));
  return Value::Text(std::move(text));
}

Result Attribute(Runtime* runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* name, TextArgument(arguments[0], "name"));
  RETURN_IF_ERROR(runtime->ChargeBytes(name->size()));
  ASSIGN_OR_RETURN(Value attribute, GetAttribute(value, name->text()));
  const bool is_item = value.dict() != nullptr && attribute.object() == nullptr;
  return is_item ? Value::Missing("a dict has this item but no such attribute") : attribute;
}

Result WordCount(Runtime* runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(runtime, value));
  RETURN_IF_ERROR(runtime->Charge(text.size()));
  int64_t count = 0;
  bool is_in_word = false;
  AllCharacters(text.text(), [&](char32_t c) {
    const bool is_word = c == '_' || IsLetterOrNumber(c);
    if (is_word && !is_in_word) ++count;
    is_in_word = is_word;
    return true;
  });
  return Value::Int(count);
}

constexpr Builtin kFilters[] = {
    {"abs", Abs},
    {"attr", Attribute, 1, {"name"}},
    {"capitalize", TextMethod<kCapitalize>},
    {"center", Center, 0, {"width"}},
    {"count", Length},
    {"d", Default, 0, {"default_value", "boolean"}},
    {"default", Default, 0, {"default_value", "boolean"}},
    {"e", Escape},
    {"escape", Escape},
    {"float", Float, 0, {"default"}},
    {"forceescape", Escape},
    {"format", Format, Builtin::kAny},
    {"indent", Indent, 0, {"width", "first", "blank"}},
    {"int", Int, 0, {"default", "base"}},
    {"length", Length},
    {"lower", TextMethod<kLower>},
    {"replace", Replace, 2, {"old", "new", "count"}},
    {"round", Round, 0, {"precision", "method"}},
    {"safe", String},
    {"string", String},
    {"title", Title},
    {"tojson", Json, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", TextMethod<kStrip>, 0, {"chars"}},
    {"upper", TextMethod<kUpper>},
    {"wordcount", WordCount},
};

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  const Builtin* filter = FindBuiltin(kFilters, name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

}  // namespace tandem::jinja
