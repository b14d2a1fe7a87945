#include "base/guard.h"

#include <exception>
#include <new>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Where there is no memory for the words either, without them.
absl::Status Failure(const char* what, const char* reason) {
  try {
    return absl::InternalError(absl::StrCat(what, ": ", reason));
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kInternal, "");
  }
}

}  // namespace

absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Failure(what, "out of memory");
  } catch (const std::length_error&) {
    return Failure(what, "out of memory");
  } catch (const std::exception& error) {
    return Failure(what, error.what());
  } catch (...) {
    return Failure(what, "something that is no std::exception was thrown");
  }
}

absl::Status Caught(const char* what, absl::FunctionRef<void()> work) {
  return Guarded(what, [&] {
    work();
    return absl::OkStatus();
  });
}

}  // namespace tandem
