// Announces Abseil's locks to the thread sanitizer. Used only in builds with that sanitizer,
// because the system's Abseil is compiled without it. These functions take precedence over the
// library's functions of the same name and call them. Conditions that the library evaluates inside
// of them, perhaps for other waiting threads, are not announced. tests/sanitizers checks that the
// programs call no other locking functions of Abseil.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstring>
#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"

namespace {

// Returns the library's function of the same name as `function`, which is one of those below.
template <typename Function>
Function Find(Function function) {
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

// Whether this thread is inside one of the library's functions. They call each other through the
// functions below; only the outermost call is announced.
thread_local bool is_inside = false;

// Calls the library's `kFunction` between `before()` and `after()`.
template <auto kFunction, typename Before, typename After, typename Class, typename... Arguments>
auto Call(Before before, After after, Class* object, Arguments... arguments) {
  static const auto original = Find(kFunction);
  if (is_inside) return (object->*original)(arguments...);
  before();
  is_inside = true;
  const absl::Cleanup called = [&] {
    is_inside = false;
    after();
  };
  return (object->*original)(arguments...);
}

void Nothing() {}

constexpr unsigned kWrite = 0;
constexpr unsigned kRead = __tsan_mutex_read_lock;

// Announces and calls a function that returns with `mutex` locked.
template <auto kFunction, typename Class, typename... Arguments>
auto Lock(absl::Mutex* mutex, unsigned flags, Class* object, Arguments... arguments) {
  return Call<kFunction>([=] { __tsan_mutex_pre_lock(mutex, flags); },
                         [=] { __tsan_mutex_post_lock(mutex, flags, 0); }, object, arguments...);
}

// Announces and calls a function that returns whether it has locked `mutex`.
template <auto kFunction>
bool TryLock(absl::Mutex* mutex, unsigned flags) {
  flags |= __tsan_mutex_try_lock;
  static const auto original = Find(kFunction);
  if (is_inside) return (mutex->*original)();
  __tsan_mutex_pre_lock(mutex, flags);
  const bool is_locked = (mutex->*original)();
  __tsan_mutex_post_lock(mutex, is_locked ? flags : flags | __tsan_mutex_try_lock_failed, 0);
  return is_locked;
}

template <auto kFunction>
void Unlock(absl::Mutex* mutex, unsigned flags) {
  Call<kFunction>([=] { __tsan_mutex_pre_unlock(mutex, flags); },
                  [=] { __tsan_mutex_post_unlock(mutex, flags); }, mutex);
}

// Announces and calls a function that releases `mutex`, which this thread holds as a writer, while
// it waits.
template <auto kFunction, typename Class, typename... Arguments>
auto Wait(absl::Mutex* mutex, Class* object, Arguments... arguments) {
  const auto let_go = [=] {
    __tsan_mutex_pre_unlock(mutex, kWrite);
    __tsan_mutex_post_unlock(mutex, kWrite);
    __tsan_mutex_pre_lock(mutex, kWrite);
  };
  return Call<kFunction>(
      let_go, [=] { __tsan_mutex_post_lock(mutex, kWrite, 0); }, object, arguments...);
}

// Each calls a function through which one thread waits for another, and tells the sanitizer so:
// Announce in the thread that notifies, Await in the thread that waits. `object` identifies the
// two.
template <auto kFunction, typename Class>
auto Announce(Class* object) {
  return Call<kFunction>([=] { __tsan_release(object); }, Nothing, object);
}
template <auto kFunction, typename Class, typename... Arguments>
auto Await(Class* object, Arguments... arguments) {
  void* const heard = const_cast<std::remove_const_t<Class>*>(object);
  return Call<kFunction>(
      Nothing, [=] { __tsan_acquire(heard); }, object, arguments...);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() { ::Lock<&Mutex::Lock>(this, kWrite, this); }
void Mutex::ReaderLock() { ::Lock<&Mutex::ReaderLock>(this, kRead, this); }
bool Mutex::TryLock() { return ::TryLock<&Mutex::TryLock>(this, kWrite); }
bool Mutex::ReaderTryLock() { return ::TryLock<&Mutex::ReaderTryLock>(this, kRead); }
void Mutex::Unlock() { ::Unlock<&Mutex::Unlock>(this, kWrite); }
void Mutex::ReaderUnlock() { ::Unlock<&Mutex::ReaderUnlock>(this, kRead); }

void Mutex::LockWhen(const Condition& condition) {
  ::Lock<&Mutex::LockWhen>(this, kWrite, this, condition);
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return ::Lock<&Mutex::LockWhenWithTimeout>(this, kWrite, this, condition, timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  return ::Lock<&Mutex::LockWhenWithDeadline>(this, kWrite, this, condition, deadline);
}

void Mutex::Await(const Condition& condition) { Wait<&Mutex::Await>(this, this, condition); }
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return Wait<&Mutex::AwaitWithTimeout>(this, this, condition, timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  return Wait<&Mutex::AwaitWithDeadline>(this, this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) { ::Wait<&CondVar::Wait>(mutex, this, mutex); }
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return ::Wait<&CondVar::WaitWithTimeout>(mutex, this, mutex, timeout);
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  return ::Wait<&CondVar::WaitWithDeadline>(mutex, this, mutex, deadline);
}

void Notification::Notify() { Announce<&Notification::Notify>(this); }
void Notification::WaitForNotification() const { Await<&Notification::WaitForNotification>(this); }
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return Await<&Notification::WaitForNotificationWithTimeout>(this, timeout);
}
bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  return Await<&Notification::WaitForNotificationWithDeadline>(this, deadline);
}

bool BlockingCounter::DecrementCount() { return Announce<&BlockingCounter::DecrementCount>(this); }
void BlockingCounter::Wait() { Await<&BlockingCounter::Wait>(this); }

ABSL_NAMESPACE_END
}  // namespace absl
