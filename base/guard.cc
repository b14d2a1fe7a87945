#include "base/guard.h"

#include <exception>
#include <new>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tandem {

absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body) {
  const char* reason = "an exception that is not a std::exception";
  try {
    return body();
  } catch (const std::bad_alloc&) {
    reason = "out of memory";
  } catch (const std::length_error&) {
    reason = "out of memory";
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  } catch (...) {
  }
  return absl::InternalError(absl::StrCat(what, ": ", reason));
}

absl::Status Caught(const char* what, absl::FunctionRef<void()> work) {
  return Guarded(what, [&] {
    work();
    return absl::OkStatus();
  });
}

}  // namespace tandem
