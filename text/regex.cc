#include "text/regex.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// JIT-compiled code keeps its state on a stack of its own; the default of 32 KiB is too small for
// repeated groups over long texts.
constexpr size_t kMinStackBytes = size_t{32} << 10;
constexpr size_t kMaxStackBytes = size_t{64} << 20;

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string MessageOf(int code) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(code, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

// Returns PCRE2's error for a search from byte `start` on. An exceeded limit means that the text is
// too expensive, which is an error of the caller's text.
absl::Status MatchError(int code, size_t start) {
  const std::string what =
      absl::StrCat("regular expression: at byte ", start, ": ", MessageOf(code));
  switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
      return FieldError("text", what);
    default:
      return absl::InternalError(what);
  }
}

// The contents of classes, without the brackets.
constexpr char kSpace[] = R"(\x{9}-\x{d}\x{85}\p{Z})";
constexpr char kNoSpace[] =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr char kWord[] = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr char kHex[] = "0-9a-fA-F";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern.data(), pattern.size()) {}

  absl::StatusOr<std::string> Translate() {
    while (at_ < pattern_.size()) RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  absl::Status NotImplemented(size_t offset, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression: at offset ", offset, ": ", what, " is not implemented"));
  }
  bool Rest(absl::string_view start) const { return absl::StartsWith(pattern_.substr(at_), start); }
  void Copy(size_t count) {
    absl::StrAppend(&out_, pattern_.substr(at_, count));
    at_ += count;
  }
  void Replace(size_t count, absl::string_view by) {
    absl::StrAppend(&out_, by);
    at_ += count;
  }

  // Translates one element outside of classes.
  absl::Status Step() {
    switch (pattern_[at_]) {
      case '\\':
        return Escape();
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Repeat();
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status Escape() {
    if (at_ + 1 == pattern_.size()) return NotImplemented(at_, "a backslash at the end");
    const char letter = pattern_[at_ + 1];
    if (const absl::string_view members = ClassOf(letter); !members.empty()) {
      Replace(2, absl::StrCat(absl::ascii_isupper(letter) ? "[^" : "[", members, "]"));
    } else if (letter == 'b' || letter == 'B') {
      // A border of a word, or with \\B any other place.
      const char* const other = letter == 'b' ? "(?!" : "(?=";
      const char* const same = letter == 'b' ? "(?=" : "(?!";
      Replace(2, absl::StrCat("(?:(?<=[", kWord, "])", other, "[", kWord, "])|(?<![", kWord, "])",
                              same, "[", kWord, "]))"));
    } else {
      return PlainEscape(/*letters=*/"dDpPrntfaexuvAzZGKkRX");
    }
    return absl::OkStatus();
  }
  // Returns the members of \s, \w or \h, or of the class whose complement \S, \W or \H is; empty
  // for other letters.
  static absl::string_view ClassOf(char letter) {
    switch (absl::ascii_tolower(letter)) {
      case 's':
        return kSpace;
      case 'w':
        return kWord;
      case 'h':
        return kHex;
      default:
        return "";
    }
  }

  // Translates an escape that both read (nearly) the same. Digits are back references outside of
  // classes and octal numbers in them; other characters stand for themselves.
  absl::Status PlainEscape(absl::string_view letters) {
    const char escaped = pattern_[at_ + 1];
    if (absl::ascii_isalpha(escaped) && letters.find(escaped) == absl::string_view::npos) {
      return NotImplemented(at_, absl::StrCat("\\", std::string(1, escaped)));
    }
    if (escaped == 'v') {
      Replace(2, "\\x{b}");
    } else if (escaped == 'u') {
      const absl::string_view digits = pattern_.substr(at_ + 2, 4);
      for (const char digit : digits) {
        if (!absl::ascii_isxdigit(digit)) return NotImplemented(at_, "\\u without four digits");
      }
      if (digits.size() < 4) return NotImplemented(at_, "\\u without four digits");
      Replace(6, absl::StrCat("\\x{", digits, "}"));
    } else {
      Copy(2);
      if (absl::StrContains("pPx", absl::string_view(&escaped, 1)) && Rest("{")) {
        const size_t end = pattern_.find('}', at_);
        if (end == absl::string_view::npos) return NotImplemented(at_, "a brace without end");
        Copy(end + 1 - at_);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Class() {
    const size_t begin = at_;
    Copy(1);
    if (Rest("^")) Copy(1);
    if (Rest("]")) Copy(1);  // the first one stands for itself
    while (!Rest("]")) {
      if (at_ == pattern_.size()) return NotImplemented(begin, "a class without end");
      if (Rest("&&")) return NotImplemented(at_, "the intersection of classes");
      if (Rest("[:")) {
        const size_t end = pattern_.find(":]", at_);
        if (end == absl::string_view::npos) return NotImplemented(at_, "a class in a class");
        Copy(end + 2 - at_);
      } else if (Rest("[")) {
        return NotImplemented(at_, "a class in a class");
      } else if (Rest("\\")) {
        RETURN_IF_ERROR(EscapeInClass());
      } else {
        Copy(1);
      }
    }
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status EscapeInClass() {
    if (at_ + 1 == pattern_.size()) return NotImplemented(at_, "a backslash at the end");
    const char letter = pattern_[at_ + 1];
    const absl::string_view members = letter == 'S'                 ? kNoSpace
                                      : absl::ascii_islower(letter) ? ClassOf(letter)
                                                                    : "";
    if (members.empty()) return PlainEscape(/*letters=*/"dDpPrntfaexuvb");
    Replace(2, members);
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (Rest("(*")) return NotImplemented(at_, "(*");
    if (!Rest("(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const absl::string_view start : {"(?:", "(?=", "(?!", "(?>", "(?<"}) {
      if (Rest(start)) {
        Copy(start.size());
        return absl::OkStatus();
      }
    }
    if (Rest("(?#")) {
      const size_t end = pattern_.find(')', at_);
      if (end == absl::string_view::npos) return NotImplemented(at_, "a comment without end");
      Replace(end + 1 - at_, "");
      return absl::OkStatus();
    }
    const size_t end = pattern_.find_first_not_of("imx-", at_ + 2);
    if (end == absl::string_view::npos || (pattern_[end] != ':' && pattern_[end] != ')')) {
      return NotImplemented(at_, "this group");
    }
    Copy(2);
    while (at_ < end) Replace(1, pattern_[at_] == 'm' ? "s" : pattern_.substr(at_, 1));
    Copy(1);
    return absl::OkStatus();
  }

  // Translates a repeat count, or a brace that stands for itself.
  absl::Status Repeat() {
    const size_t begin = at_;
    size_t end = at_ + 1;
    while (end < pattern_.size() && absl::ascii_isdigit(pattern_[end])) ++end;
    const bool has_low = end > begin + 1;
    const bool has_comma = end < pattern_.size() && pattern_[end] == ',';
    const size_t high = has_comma ? ++end : end;
    while (end < pattern_.size() && absl::ascii_isdigit(pattern_[end])) ++end;
    const bool is_repeat =
        end < pattern_.size() && pattern_[end] == '}' && (has_low || (has_comma && end > high));
    if (!is_repeat) {
      Replace(1, "\\{");
      return absl::OkStatus();
    }
    if (!has_low) Replace(1, "{0");
    Copy(end + 1 - at_);
    if (Rest("+")) return NotImplemented(at_, "+ after a repeat count");
    return absl::OkStatus();
  }

  const absl::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string translated, TranslateToPcre2(pattern));
  return CompileRaw(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE);
}

absl::StatusOr<Regex> Regex::CompileLiteral(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("is empty");
  return CompileRaw(text, PCRE2_UTF | PCRE2_LITERAL);
}

absl::StatusOr<Regex> Regex::CompileRaw(std::string_view pattern, uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const CompileContext context(pcre2_compile_context_create(nullptr));
  // A newline is \n alone, as in Oniguruma, whatever PCRE2 was built with.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &offset, context.get());
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression: at offset ", offset, ": ", MessageOf(error)));
  }
  // Faster if PCRE2 has a JIT compiler for this machine; otherwise the interpreter runs.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::shared_ptr<const void>(code, [](const void* p) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p)));
  }));
}

absl::StatusOr<std::vector<Regex::Match>> Regex::FindAll(std::string_view text) const {
  std::vector<Match> matches;
  RETURN_IF_ERROR(ForEach(text, [&](const Match& match) {
    matches.push_back(match);
    return absl::OkStatus();
  }));
  return matches;
}

absl::Status Regex::ForEach(std::string_view text,
                            absl::FunctionRef<absl::Status(const Match& match)> sink) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  JitStack stack;
  std::optional<size_t> last_end;  // of the last match
  for (size_t start = 0; start <= text.size();) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   start, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      stack.reset(pcre2_jit_stack_create(kMinStackBytes, kMaxStackBytes, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (result < 0) return MatchError(result, start);
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
    const bool is_empty = at[0] == at[1];
    // An empty match at the end of the last match does not count.
    if (!is_empty || last_end != at[1]) {
      last_end = at[1];
      RETURN_IF_ERROR(sink({at[0], at[1]}));
      start = at[1];
      continue;
    }
    start = at[1] + 1;
    while (start < text.size() && (text[start] & 0xC0) == 0x80) ++start;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TranslateToPcre2(std::string_view pattern) {
  return Translator(pattern).Translate();
}

}  // namespace tandem
