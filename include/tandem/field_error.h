// Errors that name a field in a machine-readable way. The message begins with the field, which is
// also a payload of the status. Another payload may hold a code for the kind of error.
#ifndef TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
#define TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// INVALID_ARGUMENT "`field`: `what`", for instance "max_tokens: must be at least 1, got 0".
absl::Status FieldError(absl::string_view field, absl::string_view what);

// Returns the field that the status names, or an empty string.
std::string FieldOf(const absl::Status& status);

// Returns `status` with `field` in place of the field that it names, if any. Keeps its other
// payloads.
absl::Status WithField(const absl::Status& status, absl::string_view field);

// Returns the same status with a machine-readable `code`, such as "model_not_found".
absl::Status WithCode(absl::Status status, absl::string_view code);

// Returns the code of the status, or an empty string.
std::string CodeOf(const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_FIELD_ERROR_H_
