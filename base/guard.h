// The end of the road for exceptions of libraries, std::bad_alloc above all: at the root of every
// thread, and where the caller's code is entered or left.
#ifndef TANDEM_BASE_GUARD_H_
#define TANDEM_BASE_GUARD_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// What `body` returns; what it throws as INTERNAL, "<what>: <reason>".
absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body);

// The same for work that can only throw.
absl::Status Caught(const char* what, absl::FunctionRef<void()> work);

// The message of a failed status. It is empty where Guarded lacked the memory for one.
inline absl::string_view WordsOfFailure(const absl::Status& status) {
  return status.message().empty() ? absl::string_view("out of memory") : status.message();
}

}  // namespace tandem

#endif  // TANDEM_BASE_GUARD_H_
