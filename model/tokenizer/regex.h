#ifndef TANDEM_MODEL_TOKENIZER_REGEX_H_
#define TANDEM_MODEL_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// A regular expression over UTF-8 with Unicode properties, by PCRE2. Thread-safe.
class Regex {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  // Expressions are written for Oniguruma, as tokenizer.json has them; the two differ in what \s
  // is, which is translated. INVALID_ARGUMENT with PCRE2's message if it does not compile.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  // Matches exactly `text`.
  static absl::StatusOr<Regex> CompileLiteral(std::string_view text);

  // Every match in order, none overlapping.   REQUIRES: text is UTF-8.
  // RESOURCE_EXHAUSTED if matching takes too many steps.
  absl::StatusOr<std::vector<Match>> FindAll(std::string_view text) const;

 private:
  explicit Regex(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  static absl::StatusOr<Regex> CompileRaw(std::string_view pattern, unsigned extra_options);

  std::shared_ptr<const void> code_;  // a pcre2_code
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_REGEX_H_
