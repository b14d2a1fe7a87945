// Catches exceptions of libraries. Use at the root of a thread, around a library that throws, and
// where the program calls user code or is called by it.
#ifndef TANDEM_BASE_GUARD_H_
#define TANDEM_BASE_GUARD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tandem {

// Returns the result of `body`, or INTERNAL, "`what`: <reason>", if it throws. Lack of memory or of
// threads gives a status with a constant text, which was made when the program started: copying it
// allocates nothing.
absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body) noexcept;

// The same for work without a result.
absl::Status Caught(const char* what, absl::FunctionRef<void()> work) noexcept;

// Logs what `work` throws. Returns whether it threw nothing. The body of every thread is in one of
// these three functions.
bool Attempt(const char* what, absl::FunctionRef<void()> work) noexcept;

}  // namespace tandem

#endif  // TANDEM_BASE_GUARD_H_
