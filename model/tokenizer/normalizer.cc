#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

absl::StatusOr<std::string> MapUnicode(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  if (size < 0) return absl::InternalError(utf8proc_errmsg(size));
  std::string result(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
  return result;
}

// Options of utf8proc for a Unicode normalisation form; 0 for other names.
int FormOptions(absl::string_view type) {
  const int compose = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  const int decompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (type == "NFC") return compose;
  if (type == "NFD") return decompose;
  if (type == "NFKC") return compose | UTF8PROC_COMPAT;
  if (type == "NFKD") return decompose | UTF8PROC_COMPAT;
  return 0;
}

std::string Lowercase(const std::string& text) {
  std::string lower;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(std::string_view(text).substr(at));
    at += prefix.size;
    AppendUtf8(
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(prefix.code_point))),
        &lower);
  }
  return lower;
}

// Byte offsets of the first and behind the last character that is not white space.
std::string Strip(const std::string& text, bool left, bool right) {
  size_t begin = std::string::npos;
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(std::string_view(text).substr(at));
    if (!IsWhiteSpace(prefix.code_point)) {
      if (begin == std::string::npos) begin = at;
      end = at + prefix.size;
    }
    at += prefix.size;
  }
  if (begin == std::string::npos) return left || right ? "" : text;
  if (!left) begin = 0;
  if (!right) end = text.size();
  return text.substr(begin, end - begin);
}

absl::StatusOr<Regex> PatternOf(const JsonField& field) {
  ASSIGN_OR_RETURN(const JsonField pattern, field.Member("pattern"));
  ASSIGN_OR_RETURN(const JsonField literal, pattern.Member("String"));
  ASSIGN_OR_RETURN(const JsonField expression, pattern.Member("Regex"));
  if (!literal.is_null()) {
    ASSIGN_OR_RETURN(const std::string text, literal.String());
    return Regex::CompileLiteral(text);
  }
  ASSIGN_OR_RETURN(const std::string text, expression.String());
  absl::StatusOr<Regex> regex = Regex::Compile(text);
  if (!regex.ok()) return expression.Error(std::string(regex.status().message()));
  return regex;
}

absl::StatusOr<std::string> ReplaceAll(const Regex& regex, const std::string& content,
                                       const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(text));
  std::string result;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    absl::StrAppend(&result, absl::string_view(text).substr(done, match.begin - done), content);
    done = match.end;
  }
  result.append(text, done);
  return result;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const JsonField& field) {
  Normalizer normalizer;
  if (!field.is_null()) RETURN_IF_ERROR(normalizer.Add(field));
  return normalizer;
}

absl::Status Normalizer::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonField parts, field.Member("normalizers"));
    RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField part, parts.Element(i));
      RETURN_IF_ERROR(Add(part));
    }
    return absl::OkStatus();
  }
  if (const int options = FormOptions(type); options != 0) {
    steps_.push_back([options](const std::string& text) { return MapUnicode(text, options); });
  } else if (type == "Lowercase") {
    steps_.push_back([](const std::string& text) { return Lowercase(text); });
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("prepend"));
    ASSIGN_OR_RETURN(const std::string prefix, member.String());
    steps_.push_back([prefix](const std::string& text) {
      return text.empty() ? text : absl::StrCat(prefix, text);
    });
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(const Regex regex, PatternOf(field));
    ASSIGN_OR_RETURN(const JsonField member, field.Member("content"));
    ASSIGN_OR_RETURN(const std::string content, member.String());
    steps_.push_back(
        [regex, content](const std::string& text) { return ReplaceAll(regex, content, text); });
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const JsonField left_field, field.Member("strip_left"));
    ASSIGN_OR_RETURN(const JsonField right_field, field.Member("strip_right"));
    ASSIGN_OR_RETURN(const bool left, left_field.Bool(true));
    ASSIGN_OR_RETURN(const bool right, right_field.Bool(true));
    steps_.push_back([left, right](const std::string& text) { return Strip(text, left, right); });
  } else {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("type"));
    return member.Error(
        "is not implemented; there are NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip "
        "and Sequence");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Normalizer::Apply(std::string text) const {
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(text, step(std::move(text)));
  }
  return text;
}

}  // namespace tandem
