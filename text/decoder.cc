#include "text/decoder.h"

#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "text/component_fields.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"

namespace tandem {
namespace {

// Returns the byte of a token "<0xE2>", or -1 for other tokens.
int ByteOf(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  uint8_t value = 0;
  const auto read = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  return read.ec == std::errc() && read.ptr == token.data() + 5 ? value : -1;
}

std::string Stripped(absl::string_view token, const std::string& content, int64_t num_start,
                     int64_t num_stop) {
  for (int64_t i = 0; i < num_start && absl::ConsumePrefix(&token, content); ++i) {
  }
  for (int64_t i = 0; i < num_stop && absl::ConsumeSuffix(&token, content); ++i) {
  }
  return std::string(token);
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const JsonField& field) {
  TokenDecoder decoder;
  if (field.is_null()) {
    decoder.rules_.separator = " ";  // as the reference joins tokens without a decoder
    return decoder;
  }
  RETURN_IF_ERROR(decoder.Add(field));
  return decoder;
}

TokenDecoder TokenDecoder::ByteLevel() {
  TokenDecoder decoder;
  decoder.AddByteLevel();
  return decoder;
}

TokenDecoder TokenDecoder::SentencePiece(bool strips_space) {
  TokenDecoder decoder;
  decoder.steps_.push_back([](const std::string& token, bool) {
    return absl::StrReplaceAll(token, {{"\u2581", " "}});
  });
  decoder.rules_.has_byte_tokens = true;
  decoder.stage_ = Stage::kWhole;
  if (strips_space) {
    decoder.rules_.num_stripped = 1;
    decoder.rules_.stripped = " ";
  }
  return decoder;
}

void TokenDecoder::AddByteLevel() {
  steps_.push_back([](const std::string& token, bool) { return FromByteAlphabet(token); });
  stage_ = Stage::kWhole;
}

// Components that change tokens must come before those that join them: after the join, their
// changes would not be known before the end of the stream.
absl::Status TokenDecoder::CheckStage(const JsonField& field) const {
  if (stage_ == Stage::kTokens) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonField type, field.Member("type"));
  return type.Error("is not implemented after ByteFallback, ByteLevel or Fuse");
}

absl::Status TokenDecoder::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEachPart(field, "decoders", [this](const JsonField& part) { return Add(part); });
  }
  if (type == "Fuse") {
    stage_ = Stage::kWhole;
    return absl::OkStatus();
  }
  if (type == "Strip") return AddStrip(field);
  if (type == "Metaspace") return AddMetaspace(field);
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(CheckStage(field));
    AddByteLevel();
    return absl::OkStatus();
  }
  if (type == "ByteFallback") {
    RETURN_IF_ERROR(CheckStage(field));
    rules_.has_byte_tokens = true;
    stage_ = Stage::kCharacters;
    return absl::OkStatus();
  }
  if (type == "Replace") {
    RETURN_IF_ERROR(CheckStage(field));
    ASSIGN_OR_RETURN(const Regex regex, ReadPattern(field));
    ASSIGN_OR_RETURN(const JsonField member, field.Member("content"));
    ASSIGN_OR_RETURN(const std::string content, member.String());
    steps_.push_back([regex, content](const std::string& token, bool) {
      return ReplaceAll(regex, content, token);
    });
    return absl::OkStatus();
  }
  return UnknownType(field, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip, Sequence");
}

// The first token loses its replacement characters; in other tokens they become spaces.
absl::Status TokenDecoder::AddMetaspace(const JsonField& field) {
  RETURN_IF_ERROR(CheckStage(field));
  ASSIGN_OR_RETURN(const Metaspace metaspace, ReadMetaspace(field));
  const bool strips = metaspace.prepend != Metaspace::Prepend::kNever;
  first_differs_ = first_differs_ || strips;
  steps_.push_back([=](const std::string& token, bool is_first) {
    return absl::StrReplaceAll(token, {{metaspace.replacement, is_first && strips ? "" : " "}});
  });
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddStrip(const JsonField& field) {
  constexpr int64_t kMaxStripped = 1 << 20;
  ASSIGN_OR_RETURN(const JsonField content_field, field.Member("content"));
  ASSIGN_OR_RETURN(const std::string content, content_field.Character());
  ASSIGN_OR_RETURN(const JsonField start, field.Member("start"));
  ASSIGN_OR_RETURN(const JsonField stop, field.Member("stop"));
  ASSIGN_OR_RETURN(const int64_t num_start, start.Integer(0, kMaxStripped));
  ASSIGN_OR_RETURN(const int64_t num_stop, stop.Integer(0, kMaxStripped));
  if (stage_ == Stage::kWhole) {
    if (num_stop != 0) return stop.Error("is not implemented after Fuse, allowed: 0");
    if (rules_.num_stripped != 0) return field.Error("is not implemented twice after Fuse");
    rules_.num_stripped = static_cast<int>(num_start);
    rules_.stripped = content;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckStage(field));
  steps_.push_back([=](const std::string& token, bool) {
    return Stripped(token, content, num_start, num_stop);
  });
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoder::Text> TokenDecoder::TextOf(std::string_view token,
                                                        bool is_first) const {
  Text text{.bytes = std::string(token), .is_byte = false};
  for (const auto& step : steps_) {
    ASSIGN_OR_RETURN(text.bytes, step(std::move(text.bytes), is_first));
  }
  if (const int byte = rules_.has_byte_tokens ? ByteOf(text.bytes) : -1; byte >= 0) {
    return Text{.bytes = std::string(1, static_cast<char>(byte)), .is_byte = true};
  }
  return text;
}

}  // namespace tandem
