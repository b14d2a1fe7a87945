#include "model/tokenizer/decoder.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "model/tokenizer/byte_alphabet.h"

namespace tandem {
namespace {

// "<0xE2>" is the byte E2; other tokens are no byte: -1.
int ByteOf(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    const bool is_digit = digit >= '0' && digit <= '9';
    if (!is_digit && !(digit >= 'A' && digit <= 'F') && !(digit >= 'a' && digit <= 'f')) return -1;
    value = value * 16 + (is_digit ? digit - '0' : (digit | 0x20) - 'a' + 10);
  }
  return value;
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const JsonField& field) {
  TokenDecoder decoder;
  if (field.is_null()) {
    decoder.separator_ = " ";  // as the reference joins tokens that it knows nothing about
    return decoder;
  }
  RETURN_IF_ERROR(decoder.Add(field));
  return decoder;
}

absl::Status TokenDecoder::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonField parts, field.Member("decoders"));
    RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField part, parts.Element(i));
      RETURN_IF_ERROR(Add(part));
    }
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    steps_.push_back([](const std::string& token) { return FromByteAlphabet(token); });
  } else if (type == "ByteFallback") {
    has_byte_tokens_ = true;
  } else if (type == "Fuse") {
    is_fused_ = true;
  } else if (type == "Strip") {
    return AddStrip(field);
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(const JsonField pattern, field.Member("pattern"));
    ASSIGN_OR_RETURN(const JsonField literal, pattern.Member("String"));
    ASSIGN_OR_RETURN(const std::string from, literal.String());
    ASSIGN_OR_RETURN(const JsonField content, field.Member("content"));
    ASSIGN_OR_RETURN(const std::string to, content.String());
    steps_.push_back([from, to](const std::string& token) {
      return absl::StrReplaceAll(token, {{from, to}});
    });
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("replacement"));
    ASSIGN_OR_RETURN(const std::string from, member.String());
    ASSIGN_OR_RETURN(const JsonField scheme, field.Member("prepend_scheme"));
    if (scheme.is_null() || scheme.value() != "never") num_stripped_ = 1;
    steps_.push_back([from](const std::string& token) {
      return absl::StrReplaceAll(token, {{from, " "}});
    });
  } else {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("type"));
    return member.Error(
        "is not implemented; there are ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip "
        "and "
        "Sequence");
  }
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddStrip(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField content, field.Member("content"));
  ASSIGN_OR_RETURN(const JsonField start, field.Member("start"));
  ASSIGN_OR_RETURN(const JsonField stop, field.Member("stop"));
  ASSIGN_OR_RETURN(const int64_t num_start, start.Integer(0, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t num_stop, stop.Integer(0, 1 << 20));
  if (content.value() != " ") return content.Error("is not implemented; there is \" \"");
  if (num_stop != 0) return stop.Error("is not implemented: the end of a stream is not known");
  if (!is_fused_) return field.Error("is implemented behind Fuse only");
  num_stripped_ = static_cast<int>(num_start);
  return absl::OkStatus();
}

TokenDecoder::TokenText TokenDecoder::TextOf(std::string_view token) const {
  if (const int byte = has_byte_tokens_ ? ByteOf(token) : -1; byte >= 0) {
    return {.bytes = std::string(1, static_cast<char>(byte)), .is_byte = true};
  }
  TokenText text{.bytes = std::string(token), .is_byte = false};
  for (const auto& step : steps_) text.bytes = step(text.bytes);
  return text;
}

}  // namespace tandem
