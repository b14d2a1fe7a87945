#ifndef TANDEM_TEXT_REGEX_H_
#define TANDEM_TEXT_REGEX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A regular expression over UTF-8 with Unicode properties, run by PCRE2. Thread-safe.
class Regex {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  // Compiles an expression that is written for Oniguruma, as in tokenizer.json, after a translation
  // (TranslateToPcre2). INVALID_ARGUMENT, with the offset, if the translation fails or PCRE2
  // refuses the result.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  // Compiles an expression that matches exactly `text`. INVALID_ARGUMENT if it is empty.
  static absl::StatusOr<Regex> CompileLiteral(std::string_view text);

  // Passes every match to `sink`, in order, without overlaps. If an empty match directly follows
  // another match, the search continues one character later. An error of the sink ends the search
  // and is returned. INVALID_ARGUMENT, naming the field `text`, if matching takes too many steps.
  // REQUIRES: text is UTF-8.
  absl::Status ForEach(std::string_view text,
                       absl::FunctionRef<absl::Status(const Match& match)> sink) const;
  // Returns all matches at once.
  absl::StatusOr<std::vector<Match>> FindAll(std::string_view text) const;

 private:
  explicit Regex(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  static absl::StatusOr<Regex> CompileRaw(std::string_view pattern, uint32_t options);

  std::shared_ptr<const void> code_;  // a pcre2_code
};

// Translates an expression of a tokenizer.json, which is written for Oniguruma in its Ruby syntax
// (its doc/RE) and which PCRE2 reads differently in part. Returns the expression that means the
// same to PCRE2 with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. These are translated:
//   \s, \w, \b, \h and \v, spelled out: PCRE2's \s has U+180E in addition to White_Space, its \w
//   has all numbers but not marks and connectors, its \h and \v are white space;
//   (?m), which lets the dot match a newline;
//   \uHHHH and {,n}, which PCRE2 does not have.
// INVALID_ARGUMENT, with the offset, for forms that are not translated: classes in classes and
// their intersections, {n,m}+ (possessive to PCRE2, repeated to Oniguruma), verbs, unknown groups.
absl::StatusOr<std::string> TranslateToPcre2(std::string_view pattern);

}  // namespace tandem

#endif  // TANDEM_TEXT_REGEX_H_
