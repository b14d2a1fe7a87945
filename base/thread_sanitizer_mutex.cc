// Tells the thread sanitizer what absl::Mutex and absl::Notification order. In builds with it
// alone, whose Abseil is the system's and knows nothing of it: these functions stand before the
// library's and call them. What the library evaluates inside them, conditions of other threads that
// wait, is left out by cmake/thread_sanitizer.supp.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstring>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"

namespace {

// The library's function of the same name as `function`, which is one of those below.
template <typename Function>
Function Original(Function function) {
  void* address = nullptr;
  static_assert(sizeof(function) >= sizeof(address));
  std::memcpy(&address, &function, sizeof(address));
  Dl_info info;
  TANDEM_CHECK(dladdr(address, &info) != 0 && info.dli_sname != nullptr);
  void* original = dlsym(RTLD_NEXT, info.dli_sname);
  TANDEM_CHECK(original != nullptr);
  std::memcpy(&function, &original, sizeof(original));
  return function;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto original = Original(&Mutex::Lock);
  (this->*original)();
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto original = Original(&Mutex::Unlock);
  __tsan_release(this);
  (this->*original)();
}

void Mutex::Await(const Condition& condition) {
  static const auto original = Original(&Mutex::Await);
  __tsan_release(this);
  (this->*original)(condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto original = Original(&Mutex::AwaitWithTimeout);
  __tsan_release(this);
  const bool is_met = (this->*original)(condition, timeout);
  __tsan_acquire(this);
  return is_met;
}

void Notification::Notify() {
  static const auto original = Original(&Notification::Notify);
  __tsan_release(this);
  (this->*original)();
}

void Notification::WaitForNotification() const {
  static const auto original = Original(&Notification::WaitForNotification);
  (this->*original)();
  __tsan_acquire(const_cast<Notification*>(this));
}

ABSL_NAMESPACE_END
}  // namespace absl
