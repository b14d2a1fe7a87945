#include "base/guard.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/string_view.h"

namespace tandem {
namespace {

const absl::Status& out_of_memory = *new absl::Status(absl::InternalError("out of memory"));
const absl::Status& out_of_threads =
    *new absl::Status(absl::InternalError("the system cannot start more threads"));

absl::Status Failure(const char* what, const char* reason) {
  try {
    return absl::InternalError(absl::StrCat(what, ": ", reason));
  } catch (const std::exception&) {
    return out_of_memory;
  }
}

}  // namespace

absl::Status Guarded(const char* what, absl::FunctionRef<absl::Status()> body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (const std::length_error&) {
    return out_of_memory;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::not_enough_memory) return out_of_memory;
    if (error.code() == std::errc::resource_unavailable_try_again) return out_of_threads;
    return Failure(what, error.what());
  } catch (const std::exception& error) {
    return Failure(what, error.what());
  } catch (...) {
    return Failure(what, "an exception that is not a std::exception");
  }
}

absl::Status Caught(const char* what, absl::FunctionRef<void()> work) noexcept {
  return Guarded(what, [&] {
    work();
    return absl::OkStatus();
  });
}

bool Attempt(const char* what, absl::FunctionRef<void()> work) noexcept {
  const absl::Status status = Caught(what, work);
  if (!status.ok()) Log(LogLevel::kError, StdView(status.message()));
  return status.ok();
}

}  // namespace tandem
