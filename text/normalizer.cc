#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "text/component_fields.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace tandem {
namespace {

// Puts runs of combining characters in canonical order (Unicode 3.11, D109) with a stable sort: the
// library's own ordering is quadratic on long runs.
void SortMarks(std::vector<utf8proc_int32_t>* points) {
  const auto mark_class = [](utf8proc_int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  const auto end = points->end();
  for (auto it = points->begin(); it != end;) {
    if (mark_class(*it) == 0) {
      ++it;
      continue;
    }
    const auto run_end =
        std::find_if(it, end, [&](utf8proc_int32_t point) { return mark_class(point) == 0; });
    std::stable_sort(it, run_end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
    it = run_end;
  }
}

// Returns a Unicode normalisation form, given by options of utf8proc.
absl::StatusOr<std::string> Normalized(const std::string& text, int options) {
  if (IsAscii(text)) return text;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(std::string_view(text).substr(at));
    at += prefix.size;
    utf8proc_int32_t parts[32];  // at most 18 are needed, by U+FDFA
    int last_bound_class = 0;    // of graphemes; unused
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(prefix.code_point), parts, std::size(parts),
        static_cast<utf8proc_option_t>(options), &last_bound_class);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
      return absl::InternalError(absl::StrCat("normalising U+", absl::Hex(prefix.code_point)));
    }
    points.insert(points.end(), parts, parts + count);
  }
  SortMarks(&points);
  utf8proc_ssize_t size = static_cast<utf8proc_ssize_t>(points.size());
  if (options & UTF8PROC_COMPOSE) {
    size = utf8proc_normalize_utf32(points.data(), size, static_cast<utf8proc_option_t>(options));
    if (size < 0) return absl::InternalError(utf8proc_errmsg(size));
  }
  std::string result;
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    AppendUtf8(static_cast<char32_t>(points[i]), &result);
  }
  return result;
}

// Returns options of utf8proc for a Unicode normalisation form; 0 for other names.
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
    if (prefix.code_point == 0x130) {  // I with a dot: the only one that becomes two characters
      lower += "i\u0307";
      continue;
    }
    AppendUtf8(
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(prefix.code_point))),
        &lower);
  }
  return lower;
}

// Removes white space at the requested ends.
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

// Returns the text as SentencePiece's "identity" normaliser gives it. `trims`:
// remove_extra_whitespaces.
std::string MarkSpaces(absl::string_view text, bool adds_prefix, bool trims) {
  constexpr char kSpace[] = "\u2581";
  while (trims && absl::ConsumePrefix(&text, " ")) {
  }
  if (text.empty()) return "";
  std::string marked = adds_prefix ? kSpace : "";
  bool is_behind_space = false;
  for (const char byte : text) {
    if (byte != ' ') {
      marked += byte;
    } else if (!trims || !is_behind_space) {
      marked += kSpace;
    }
    is_behind_space = byte == ' ';
  }
  // From here on a U+2581 of the text itself is treated as a space.
  while (trims && absl::EndsWith(marked, kSpace)) marked.resize(marked.size() - strlen(kSpace));
  return marked;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const JsonField& field) {
  Normalizer normalizer;
  if (!field.is_null()) RETURN_IF_ERROR(normalizer.Add(field));
  return normalizer;
}

Normalizer Normalizer::Nfc() {
  Normalizer normalizer;
  normalizer.steps_.push_back(
      [](const std::string& text) { return Normalized(text, FormOptions("NFC")); });
  return normalizer;
}

Normalizer Normalizer::SentencePiece(bool adds_prefix, bool trims) {
  Normalizer normalizer;
  normalizer.steps_.push_back([adds_prefix, trims](const std::string& text) {
    return MarkSpaces(text, adds_prefix, trims);
  });
  return normalizer;
}

absl::Status Normalizer::Add(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEachPart(field, "normalizers", [this](const JsonField& part) { return Add(part); });
  }
  if (const int options = FormOptions(type); options != 0) {
    steps_.push_back([options](const std::string& text) { return Normalized(text, options); });
  } else if (type == "Lowercase") {
    steps_.push_back([](const std::string& text) { return Lowercase(text); });
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(const JsonField member, field.Member("prepend"));
    ASSIGN_OR_RETURN(const std::string prefix, member.String());
    steps_.push_back([prefix](const std::string& text) {
      return text.empty() ? text : absl::StrCat(prefix, text);
    });
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(const Regex regex, ReadPattern(field));
    ASSIGN_OR_RETURN(const JsonField member, field.Member("content"));
    ASSIGN_OR_RETURN(const std::string content, member.String());
    steps_.push_back(
        [regex, content](const std::string& text) { return ReplaceAll(regex, content, text); });
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const JsonField left_field, field.Member("strip_left"));
    ASSIGN_OR_RETURN(const JsonField right_field, field.Member("strip_right"));
    ASSIGN_OR_RETURN(const bool left, left_field.Bool());
    ASSIGN_OR_RETURN(const bool right, right_field.Bool());
    steps_.push_back([left, right](const std::string& text) { return Strip(text, left, right); });
  } else {
    return UnknownType(field, "Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Sequence");
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
