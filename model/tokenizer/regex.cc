#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// White_Space of Unicode; PCRE2's own \s has U+180E beyond it.
constexpr char kWhiteSpaceSet[] = R"(\x09-\x0d\x{85}\p{Z})";

// Spells \s and \S out, which may stand inside a class (\S only outside).
std::string TranslatePattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        absl::StrAppend(&out, in_class ? "" : "[", kWhiteSpaceSet, in_class ? "" : "]");
      } else if (escaped == 'S' && !in_class) {
        absl::StrAppend(&out, "[^", kWhiteSpaceSet, "]");
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  return CompileRaw(TranslatePattern(pattern), 0);
}

absl::StatusOr<Regex> Regex::CompileLiteral(std::string_view text) {
  return CompileRaw(text, PCRE2_LITERAL);
}

absl::StatusOr<Regex> Regex::CompileRaw(std::string_view pattern, unsigned extra_options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = extra_options != 0 ? PCRE2_UTF | extra_options : PCRE2_UTF | PCRE2_UCP;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(absl::StrCat("regular expression: at offset ", offset, ": ",
                                                   reinterpret_cast<const char*>(message)));
  }
  // Faster where there is a compiler for this machine; without, the interpreter runs.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::shared_ptr<const void>(code, [](const void* p) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p)));
  }));
}

absl::StatusOr<std::vector<Regex::Match>> Regex::FindAll(std::string_view text) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create_from_pattern(code, nullptr));
  std::vector<Match> matches;
  for (size_t start = 0; start <= text.size();) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   start, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("regular expression: error ", result));
    }
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
    matches.push_back({at[0], at[1]});
    start = at[1];
    if (at[0] == at[1]) {  // an empty match: go on behind the next character
      ++start;
      while (start < text.size() && (text[start] & 0xC0) == 0x80) ++start;
    }
  }
  return matches;
}

}  // namespace tandem
