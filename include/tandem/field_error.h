// Errors that name a field, for programs as well: the field is a payload of the status, and the
// message begins with it. So is a code, which says what kind of error it is.
#ifndef TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
#define TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// INVALID_ARGUMENT "`field`: `what`", for instance "max_tokens: 0 is not 1 or more".
absl::Status FieldError(absl::string_view field, absl::string_view what);

// The field that the status names; empty if it names none.
std::string FieldOf(const absl::Status& status);

// `status`, naming `field` in place of the field that it names, if it names one; its other payloads
// are kept.
absl::Status WithField(const absl::Status& status, absl::string_view field);

// The same status with a `code` for programs, such as "model_not_found".
absl::Status WithCode(absl::Status status, absl::string_view code);

// The code of the status; empty if it has none.
std::string CodeOf(const absl::Status& status);

// FieldError unless `value` is `least` or more, or from `least` to `most`.
absl::Status CheckAtLeast(absl::string_view field, int64_t value, int64_t least);
absl::Status CheckBetween(absl::string_view field, int64_t value, int64_t least, int64_t most);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
