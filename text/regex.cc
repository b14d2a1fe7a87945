#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/regex_dialect.h"

namespace tandem {
namespace {

// The compiler's code keeps its place on a stack of its own; the default of 32 KiB is too small for
// repeated groups over long texts.
constexpr size_t kLeastStackBytes = size_t{32} << 10;
constexpr size_t kMostStackBytes = size_t{64} << 20;

struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct JitStackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

// What PCRE2 says of a search from byte `start` on. Its limits are on what a text may cost.
absl::Status MatchError(int code, size_t start) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(code, message, sizeof(message));
  const std::string what = absl::StrCat("regular expression: at byte ", start, ": ",
                                        reinterpret_cast<const char*>(message));
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
  const std::unique_ptr<pcre2_compile_context, CompileContextDeleter> context(
      pcre2_compile_context_create(nullptr));
  // A newline is \n alone, as in Oniguruma, whatever PCRE2 was built with.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &offset, context.get());
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
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack;
  std::optional<size_t> last_end;  // of the last match
  for (size_t start = 0; start <= text.size();) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   start, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      stack.reset(pcre2_jit_stack_create(kLeastStackBytes, kMostStackBytes, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (result < 0) return MatchError(result, start);
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
    const bool is_empty = at[0] == at[1];
    // An empty match at the end of the last one does not count.
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

}  // namespace tandem
