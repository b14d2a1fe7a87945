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

// Writes a value as Python's repr() does.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime* runtime) : runtime_(runtime) {}

  absl::Status Write(const Value& value) {
    RETURN_IF_ERROR(runtime_->Charge(1));
    if (const MarkedText* text = value.text()) {
      RETURN_IF_ERROR(ChargeEscapes(runtime_, *text));
      out_.Append(QuotedAsPython(*text));
      return absl::OkStatus();
    }
    if (value.list() != nullptr) return WriteList(value);
    if (const Dict* dict = value.dict()) return WriteDict(*dict);
    if (value.object() != nullptr) {
      return Wrong(absl::StrCat("a ", View(value.type_name()), " is not text"));
    }
    if (value.is_undefined()) {
      out_.Append("Undefined", kOwn);
    } else {
      out_.Append(Scalar(value), kOwn);
    }
    return absl::OkStatus();
  }
  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.IsTrue() ? "True" : "False";
    return value.is_float() ? FloatText(value.number()) : absl::StrCat(value.integer());
  }
  MarkedText Take() { return std::move(out_); }

 private:
  absl::Status WriteList(const Value& value) {
    const List& list = *value.list();
    if (list.kind == List::Kind::kIterator) {
      return Wrong("an iterator is not text: write `| list` after it");
    }
    if (list.kind == List::Kind::kRange) {
      return Wrong("a range is not text: write `| list` after it");
    }
    const bool is_tuple = list.kind == List::Kind::kTuple;
    const bool is_view = !is_tuple && list.kind != List::Kind::kList;
    if (is_view) out_.Append(absl::StrCat(View(value.type_name()), "("), kOwn);
    out_.Append(is_tuple ? "(" : "[", kOwn);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(", ", kOwn);
      RETURN_IF_ERROR(Write(list.items[i]));
    }
    if (is_tuple && list.items.size() == 1) out_.Append(",", kOwn);
    out_.Append(is_tuple ? ")" : is_view ? "])" : "]", kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteDict(const Dict& dict) {
    out_.Append("{", kOwn);
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!is_first) out_.Append(", ", kOwn);
      is_first = false;
      RETURN_IF_ERROR(Write(key));
      out_.Append(": ", kOwn);
      RETURN_IF_ERROR(Write(value));
    }
    out_.Append("}", kOwn);
    return absl::OkStatus();
  }

  Runtime* const runtime_;
  MarkedText out_;
};

// Writes a value as JSON.
class JsonWriter {
 public:
  JsonWriter(Runtime* runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  absl::Status Write(const Value& value, int level) {
    RETURN_IF_ERROR(runtime_->Charge(1));
    if (const MarkedText* text = value.text()) {
      RETURN_IF_ERROR(ChargeEscapes(runtime_, *text));
      out_.Append(QuotedAsJson(*text, style_.is_ascii));
      return absl::OkStatus();
    }
    const List* list = value.list();
    if (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple)) {
      return WriteList(*list, level);
    }
    if (const Dict* dict = value.dict()) return WriteDict(*dict, level);
    const std::optional<std::string> scalar = Scalar(value);
    if (!scalar.has_value()) {
      return Wrong(
          absl::StrCat("a value of type ", View(value.type_name()), " cannot be written as JSON"));
    }
    out_.Append(*scalar, kOwn);
    return absl::OkStatus();
  }
  MarkedText Take() { return std::move(out_); }

 private:
  static std::optional<std::string> Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.IsTrue() ? "true" : "false";
    if (value.is_integer()) return absl::StrCat(value.integer());
    if (!value.is_float()) return std::nullopt;
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return FloatText(value.number());
  }
  absl::Status StartLine(int level) {
    if (!style_.indent.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(runtime_->ChargeBytes(16 + level * style_.indent->size()));
    out_.Append("\n", kOwn);
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent, kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteList(const List& list, int level) {
    out_.Append("[", kOwn);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.comma, kOwn);
      RETURN_IF_ERROR(StartLine(level + 1));
      RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    if (!list.items.empty()) RETURN_IF_ERROR(StartLine(level));
    out_.Append("]", kOwn);
    return absl::OkStatus();
  }
  absl::Status WriteKey(const Value& key) {
    if (key.text() != nullptr) {
      RETURN_IF_ERROR(ChargeEscapes(runtime_, *key.text()));
      out_.Append(QuotedAsJson(*key.text(), style_.is_ascii));
    } else if (const std::optional<std::string> scalar = Scalar(key)) {
      out_.Append(absl::StrCat("\"", *scalar, "\""), kOwn);
    } else {
      return Wrong(absl::StrCat("a ", View(key.type_name()), " is not a valid JSON key"));
    }
    out_.Append(style_.colon, kOwn);
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
      RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) RETURN_IF_ERROR(StartLine(level));
    out_.Append("}", kOwn);
    return absl::OkStatus();
  }

  Runtime* const runtime_;
  const JsonStyle& style_;
  MarkedText out_;
};

absl::StatusOr<Value> Words(const std::string& text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos) {
    return Wrong(absl::StrCat("found bytes that are not UTF-8 (at byte ", invalid,
                              " of a text), allowed: UTF-8"));
  }
  return Value::Text(MarkedText(text, SpecialTokens::kPlain));
}

template <typename Json>
absl::StatusOr<Value> FromJsonAt(const Json& json, int depth) {
  if (depth > kDeepestJson) {
    return Wrong(absl::StrCat("values nested more than ", kDeepestJson, " deep"));
  }
  if (json.is_null()) return Value::None();
  if (json.is_boolean()) return Value::Bool(json.template get<bool>());
  if (json.is_string()) return Words(json.template get_ref<const std::string&>());
  if (json.is_number_float()) return Value::Float(json.template get<double>());
  if (json.is_number_unsigned() && json.template get<uint64_t>() > uint64_t{INT64_MAX}) {
    return Wrong(absl::StrCat("found the integer ", json.template get<uint64_t>(),
                              ", allowed: signed 64-bit integers"));
  }
  if (json.is_number()) return Value::Int(json.template get<int64_t>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& element : json) {
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
  ReprWriter writer(runtime);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<MarkedText> ToJson(Runtime* runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

template <typename Json>
absl::StatusOr<Value> FromJson(const Json& json) {
  return FromJsonAt(json, 1);
}
template absl::StatusOr<Value> FromJson(const SortedJson& json);
template absl::StatusOr<Value> FromJson(const JsonValue& json);

}  // namespace tandem::jinja
