// Errors that name a field, for programs as well: the field is a payload of the status, and the
// message begins with it. So is a code, which says what kind of error it is.
#ifndef TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
#define TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// INVALID_ARGUMENT "`field`: `what`", for instance "max_tokens: must be at least 1, got 0".
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

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
