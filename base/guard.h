// Catches exceptions of libraries. Use at the root of a thread, around a library that throws, and
// where the program calls user code or is called by it.
#ifndef TANDEM_BASE_GUARD_H_
#define TANDEM_BASE_GUARD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tandem {

// Returns the result of `body`, or INTERNAL, "`what`: <reason>", if it throws.
absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body);

// The same for work without a result.
absl::Status Caught(const char* what, absl::FunctionRef<void()> work);

}  // namespace tandem

#endif  // TANDEM_BASE_GUARD_H_
