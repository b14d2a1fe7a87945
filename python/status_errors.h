// Statuses as Python's exceptions (python/tandem/errors.py says which).
#ifndef TANDEM_PYTHON_STATUS_ERRORS_H_
#define TANDEM_PYTHON_STATUS_ERRORS_H_

#include <nanobind/nanobind.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::python {

// The exception for a status that is not OK. REQUIRES: the GIL is held, here and below.
nanobind::object ExceptionFor(const absl::Status& status);
// Raises an exception.
[[noreturn]] void Raise(const nanobind::object& exception);

inline void RaiseUnlessOk(const absl::Status& status) {
  if (!status.ok()) Raise(ExceptionFor(status));
}
template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  RaiseUnlessOk(value.status());
  return *std::move(value);
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_STATUS_ERRORS_H_
