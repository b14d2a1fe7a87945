#include "text/chat/jinja/value_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/text_tools.h"

namespace tandem::jinja {
namespace {

constexpr int kDeepestJson = 100;

// Calls visit(character as bytes, code point, mark) for every character.
template <typename Visit>
void ForEachCharacter(const MarkedText& text, Visit visit) {
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    while (at < run.end) {
      const std::string_view rest = std::string_view(text.text()).substr(at, run.end - at);
      const Utf8Prefix next = ReadUtf8(rest);
      visit(rest.substr(0, next.size), next.code_point, run.special);
      at += next.size;
    }
  }
}

std::string HexEscape(char32_t code_point) {
  const auto value = static_cast<uint32_t>(code_point);
  if (value < 0x100) return tandem::Format("\\x%02x", value);
  if (value < 0x10000) return tandem::Format("\\u%04x", value);
  return tandem::Format("\\U%08x", value);
}

MarkedText QuotedAsPython(const MarkedText& text) {
  const bool has_single = text.text().find('\'') != std::string::npos;
  const bool has_double = text.text().find('"') != std::string::npos;
  const std::string_view quote = has_single && !has_double ? "\"" : "'";
  MarkedText out(quote, kOwn);
  ForEachCharacter(text, [&](std::string_view bytes, char32_t c, SpecialTokens mark) {
    if (c == '\n') return out.Append("\\n", mark);
    if (c == '\r') return out.Append("\\r", mark);
    if (c == '\t') return out.Append("\\t", mark);
    if (c == '\\' || bytes == quote) return out.Append(absl::StrCat("\\", View(bytes)), mark);
    out.Append(IsPrintable(c) ? std::string(bytes) : HexEscape(c), mark);
  });
  out.Append(quote, kOwn);
  return out;
}

// JSON's escape: the code units of UTF-16.
std::string JsonEscape(char32_t code_point) {
  const auto value = static_cast<uint32_t>(code_point);
  if (value < 0x10000) return tandem::Format("\\u%04x", value);
  return tandem::Format("\\u%04x\\u%04x", 0xD800 + ((value - 0x10000) >> 10),
                        0xDC00 + ((value - 0x10000) & 0x3FF));
}

MarkedText QuotedAsJson(const MarkedText& text, bool is_ascii) {
  MarkedText out("\"", kOwn);
  ForEachCharacter(text, [&](std::string_view bytes, char32_t c, SpecialTokens mark) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t index = bytes.size() == 1 ? kEscaped.find(bytes) : std::string_view::npos;
    if (index != std::string_view::npos) {
      return out.Append(absl::StrCat("\\", View(kLetters.substr(index, 1))), mark);
    }
    const bool is_escaped = c < 0x20 || (is_ascii && c > 0x7E && c != 0x7F);
    out.Append(is_escaped ? JsonEscape(c) : std::string(bytes), mark);
  });
  out.Append("\"", kOwn);
  return out;
}

// Call before quoting a text. A byte may become six, and the quoted text exists twice: on its own
// and as a part of the output.
absl::Status ChargeEscapes(Runtime* runtime, const MarkedText& text) {
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  return runtime->CheckRoom(2 * (text.memory_bytes() + 6 * text.size()));
}

// Writes a value as Python's repr() does, or as JSON in a style.
class ValueWriter {
 public:
  ValueWriter(Runtime* runtime, bool is_json, const JsonStyle& style)
      : runtime_(runtime), is_json_(is_json), style_(style) {}

  absl::StatusOr<MarkedText> Run(const Value& value) {
    RETURN_IF_ERROR(Write(value, 0));
    return std::move(out_);
  }

 private:
  absl::Status Write(const Value& value, int level) {
    RETURN_IF_ERROR(runtime_->Charge(1));
    if (const MarkedText* text = value.text()) {
      RETURN_IF_ERROR(ChargeEscapes(runtime_, *text));
      out_.Append(is_json_ ? QuotedAsJson(*text, style_.is_ascii) : QuotedAsPython(*text));
      return absl::OkStatus();
    }
    if (value.dict() != nullptr) return WriteDict(*value.dict(), level);
    if (value.list() != nullptr) return WriteList(value, level);
    const std::optional<std::string> scalar = Scalar(value);
    if (!scalar.has_value()) return NotText(value);
    out_.Append(*scalar, kOwn);
    return absl::OkStatus();
  }
  absl::Status NotText(const Value& value) const {
    if (!is_json_) return Wrong("a ", value.type_name(), " is not text");
    return Wrong("a value of type ", value.type_name(), " cannot be written as JSON");
  }
  std::optional<std::string> Scalar(const Value& value) const {
    if (value.is_none()) return is_json_ ? "null" : "None";
    if (value.is_bool()) {
      return value.IsTrue() ? is_json_ ? "true" : "True" : is_json_ ? "false" : "False";
    }
    if (value.is_integer()) return absl::StrCat(value.integer());
    if (!value.is_float()) {
      return value.is_undefined() && !is_json_ ? std::optional("Undefined") : std::nullopt;
    }
    if (is_json_ && std::isnan(value.number())) return "NaN";
    if (is_json_ && std::isinf(value.number()))
      return value.number() > 0 ? "Infinity" : "-Infinity";
    return FloatText(value.number());
  }
  absl::Status StartLine(int level) {
    if (!style_.indent.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(runtime_->ChargeBytes(16 + level * style_.indent->size()));
    out_.Append("\n", kOwn);
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent, kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteList(const Value& value, int level) {
    const List& list = *value.list();
    const bool is_tuple = list.kind == List::Kind::kTuple;
    const bool is_view = !is_tuple && list.kind != List::Kind::kList;
    if (is_json_ && is_view) return NotText(value);
    if (list.kind == List::Kind::kIterator) {
      return Wrong("an iterator is not text: write `| list` after it");
    }
    if (list.kind == List::Kind::kRange) {
      return Wrong("a range is not text: write `| list` after it");
    }
    const bool is_round = is_tuple && !is_json_;
    if (is_view) out_.Append(absl::StrCat(View(value.type_name()), "("), kOwn);
    out_.Append(is_round ? "(" : "[", kOwn);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.comma, kOwn);
      RETURN_IF_ERROR(StartLine(level + 1));
      RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    if (!list.items.empty()) RETURN_IF_ERROR(StartLine(level));
    if (is_round && list.items.size() == 1) out_.Append(",", kOwn);
    out_.Append(is_round ? ")" : is_view ? "])" : "]", kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteKey(const Value& key) {
    if (!is_json_ || key.text() != nullptr) return Write(key, 0);
    const std::optional<std::string> scalar = Scalar(key);
    if (!scalar.has_value()) return Wrong("a ", key.type_name(), " is not a valid JSON key");
    out_.Append(absl::StrCat("\"", *scalar, "\""), kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteDict(const Dict& dict, int level) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    absl::Status order;
    if (style_.sorts_keys) {
      RETURN_IF_ERROR(runtime_->Charge(16 * entries.size()));
      std::stable_sort(entries.begin(), entries.end(),
                       [&order](const Dict::Entry* a, const Dict::Entry* b) {
                         const absl::StatusOr<bool> less = Less(a->first, b->first);
                         if (!less.ok()) order = less.status();
                         return less.ok() && *less;
                       });
    }
    RETURN_IF_ERROR(order);
    out_.Append("{", kOwn);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.comma, kOwn);
      RETURN_IF_ERROR(StartLine(level + 1));
      RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_.Append(style_.colon, kOwn);
      RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) RETURN_IF_ERROR(StartLine(level));
    out_.Append("}", kOwn);
    return absl::OkStatus();
  }

  Runtime* const runtime_;
  const bool is_json_;
  const JsonStyle& style_;
  MarkedText out_;
};

absl::StatusOr<Value> Words(const std::string& text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos) {
    return Wrong("found bytes that are not UTF-8 (at byte ", invalid,
                 " of a text), allowed: UTF-8");
  }
  return Value::Text(MarkedText(text, SpecialTokens::kPlain));
}

absl::StatusOr<Value> FromJsonAt(const JsonValue& json, int depth) {
  if (depth > kDeepestJson) return Wrong("values nested more than ", kDeepestJson, " deep");
  if (json.is_null()) return Value::None();
  if (json.is_boolean()) return Value::Bool(json.get<bool>());
  if (json.is_string()) return Words(json.get_ref<const std::string&>());
  if (json.is_number_float()) return Value::Float(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return Wrong("found the integer ", json.get<uint64_t>(), ", allowed: signed 64-bit integers");
  }
  if (json.is_number()) return Value::Int(json.get<int64_t>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const JsonValue& element : json) {
      ASSIGN_OR_RETURN(items.emplace_back(), FromJsonAt(element, depth + 1));
    }
    return Value::OfList(std::move(items));
  }
  if (!json.is_object()) return Wrong("found binary data, allowed: the types of JSON");
  Dict dict;
  for (const auto& [key, element] : json.items()) {
    ASSIGN_OR_RETURN(Value name, Words(key));
    ASSIGN_OR_RETURN(Value value, FromJsonAt(element, depth + 1));
    RETURN_IF_ERROR(dict.Set(std::move(name), std::move(value)));
  }
  return Value::OfDict(std::move(dict));
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  // from_chars does not accept a plus sign.
  const std::string_view power = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const std::string sign = text[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? absl::StrCat(".", digits.substr(1)) : "";
    return absl::StrCat(sign, digits.substr(0, 1), fraction, "e", exponent < 0 ? "-" : "+",
                        absl::Dec(std::abs(exponent), absl::kZeroPad2));
  }
  if (exponent < 0) {
    return absl::StrCat(sign, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.size() > whole ? digits.substr(whole) : "0";
  return absl::StrCat(sign, digits.substr(0, whole), ".", fraction);
}

absl::StatusOr<MarkedText> ToText(Runtime* runtime, const Value& value) {
  if (const MarkedText* text = value.text()) {
    RETURN_IF_ERROR(runtime->ChargeBytes(text->size()));
    return *text;
  }
  if (value.is_undefined()) return MarkedText();
  return ToRepr(runtime, value);
}

absl::StatusOr<MarkedText> ToRepr(Runtime* runtime, const Value& value) {
  return ValueWriter(runtime, /*is_json=*/false, JsonStyle()).Run(value);
}

absl::StatusOr<MarkedText> ToJson(Runtime* runtime, const Value& value, const JsonStyle& style) {
  return ValueWriter(runtime, /*is_json=*/true, style).Run(value);
}

absl::StatusOr<Value> FromJson(const JsonValue& json) { return FromJsonAt(json, 1); }

absl::StatusOr<std::string> JsonText(const JsonValue& json) {
  ASSIGN_OR_RETURN(const Value value, FromJson(json));
  Runtime runtime;
  ASSIGN_OR_RETURN(const MarkedText text, ToJson(&runtime, value, JsonStyle()));
  return text.text();
}

}  // namespace tandem::jinja
