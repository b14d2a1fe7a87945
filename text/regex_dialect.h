#ifndef TANDEM_TEXT_REGEX_DIALECT_H_
#define TANDEM_TEXT_REGEX_DIALECT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Expressions of a tokenizer.json are written for Oniguruma in its Ruby syntax (its doc/RE); PCRE2
// reads some of them differently. Returns the expression that means the same to PCRE2 with
// PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE:
//   \s, \w, \b, \h and \v, spelled out: PCRE2's \s has U+180E beyond White_Space, its \w no marks
//   and connectors but all numbers, \h and \v are white space;
//   (?m), which lets the dot match a newline;
//   \uHHHH and {,n}, which PCRE2 does not know.
// INVALID_ARGUMENT, with the offset, for what has no such form here: classes in classes and their
// intersections, {n,m}+ (possessive to PCRE2, repeated to Oniguruma), verbs, unknown groups.
absl::StatusOr<std::string> TranslateToPcre2(std::string_view pattern);

}  // namespace tandem

#endif  // TANDEM_TEXT_REGEX_DIALECT_H_
