// Where exceptions of libraries end: at the root of a thread, around a library that throws, and
// where the caller's code is entered or left.
#ifndef TANDEM_BASE_GUARD_H_
#define TANDEM_BASE_GUARD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tandem {

// What `body` returns; what it throws as INTERNAL, "<what>: <reason>".
absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body);

// The same for work that can only throw.
absl::Status Caught(const char* what, absl::FunctionRef<void()> work);

}  // namespace tandem

#endif  // TANDEM_BASE_GUARD_H_
