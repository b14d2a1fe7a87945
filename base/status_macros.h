#ifndef TANDEM_BASE_STATUS_MACROS_H_
#define TANDEM_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Returns the error with "name: " in front of its message; a value or OK as it is.
inline absl::Status Named(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}
template <typename Value>
absl::StatusOr<Value> Named(absl::string_view name, absl::StatusOr<Value> value) {
  if (value.ok()) return value;
  return Named(name, value.status());
}

}  // namespace tandem

#define TANDEM_CONCAT_INNER_(a, b) a##b
#define TANDEM_CONCAT_(a, b) TANDEM_CONCAT_INNER_(a, b)

// Returns from the enclosing function if `expression`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// Evaluates `expression`, an absl::StatusOr; assigns its value to `lhs` or returns its status.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_IMPL_(TANDEM_CONCAT_(status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return result.status();             \
  lhs = *std::move(result)

#endif  // TANDEM_BASE_STATUS_MACROS_H_
