// Faults that a build's sanitizer must report, and correct code that it must not report.
// `planted_fault NAME` runs one of them and exits with 0 unless the sanitizer reports it.
// CMakeLists.txt lists the expected reports.
#include <atomic>
#include <climits>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace {

using Step = absl::FunctionRef<void()>;

int shared = 0;  // written by two threads
absl::Mutex mutex;
bool is_written = false;  // under `mutex`

constexpr absl::Duration kLong = absl::Hours(1);

// Runs `first` and `second` in two threads. `second` runs later in time, but only the
// synchronisation in the two functions orders them.
void InTurn(Step first, Step second) {
  std::atomic<bool> is_over{false};
  std::thread early([&] {
    first();
    is_over.store(true, std::memory_order_relaxed);
  });
  std::thread late([&] {
    while (!is_over.load(std::memory_order_relaxed)) std::this_thread::yield();
    second();
  });
  early.join();
  late.join();
}

// Runs both at the same time. `second` may wait for `first`.
void Together(Step first, Step second) {
  std::thread waiting([&] { second(); });
  first();
  waiting.join();
}

void Write() { ++shared; }
void WriteLocked() {
  absl::MutexLock lock(&mutex);
  ++shared;
}
void WriteAndSay() {
  absl::MutexLock lock(&mutex);
  ++shared;
  is_written = true;
}
const absl::Condition& IsWritten() {
  static const absl::Condition condition(&is_written);
  return condition;
}

// ---- Must be reported ----

void Race() { InTurn(Write, Write); }

void RaceOfAReaderWhoWrites() {
  const auto write = [] {
    absl::ReaderMutexLock lock(&mutex);
    ++shared;
  };
  InTurn(write, write);
}

void RaceBesideAMutex() { InTurn(WriteLocked, Write); }

void RaceBehindANotification() {
  absl::Notification said;
  InTurn(
      [&] {
        said.Notify();
        Write();
      },
      [&] {
        said.WaitForNotification();
        Write();
      });
}

void LocksInBothOrders() {
  absl::SetMutexDeadlockDetectionMode(
      absl::OnDeadlockCycle::kIgnore);  // otherwise Abseil's own detection would abort
  absl::Mutex other;
  const auto lock = [](absl::Mutex* outer, absl::Mutex* inner) {
    absl::MutexLock first(outer);
    absl::MutexLock second(inner);
  };
  InTurn([&] { lock(&mutex, &other); }, [&] { lock(&other, &mutex); });
}

void HeapOverflow() {
  const auto numbers = std::make_unique<int[]>(4);
  volatile int past = 4;
  numbers[past] = 1;
}

void UseAfterFree() {
  auto numbers = std::make_unique<int[]>(4);
  volatile int* freed = numbers.get();
  numbers.reset();
  *freed = 1;
}

// Leaks many objects: the address of the last one can still be on the stack, where it counts as
// reachable.
void Leak() {
  for (int i = 0; i < 100; ++i) static_cast<void>(new std::vector<int>(1000));
}

void SignedOverflow() {
  volatile int most = INT_MAX;
  most = most + 1;
}

// ---- Must not be reported ----

void Nothing() {}

void MutexOrders() { InTurn(WriteLocked, WriteLocked); }

void StandardMutexOrders() {
  std::mutex standard;
  const auto write = [&] {
    const std::lock_guard lock(standard);
    ++shared;
  };
  InTurn(write, write);
}

void TryLockOrders() {
  const auto write = [] {
    while (!mutex.TryLock()) std::this_thread::yield();
    ++shared;
    mutex.Unlock();
  };
  Together(write, write);
}

void ReadersOrder() {
  int seen = 0;
  InTurn(
      [&] {
        absl::ReaderMutexLock lock(&mutex);
        seen = shared;
      },
      WriteLocked);
}

void AwaitOrders() {
  Together(WriteAndSay, [] {
    absl::MutexLock lock(&mutex);
    mutex.Await(IsWritten());
    ++shared;
  });
}

void AwaitWithTimeoutOrders() {
  Together(WriteAndSay, [] {
    absl::MutexLock lock(&mutex);
    if (mutex.AwaitWithTimeout(IsWritten(), kLong)) ++shared;
    if (mutex.AwaitWithDeadline(IsWritten(), absl::InfiniteFuture())) ++shared;
  });
}

void LockWhenOrders() {
  Together(WriteAndSay, [] {
    mutex.LockWhen(IsWritten());
    ++shared;
    mutex.Unlock();
    if (mutex.LockWhenWithTimeout(IsWritten(), kLong)) ++shared;
    mutex.Unlock();
    if (mutex.LockWhenWithDeadline(IsWritten(), absl::InfiniteFuture())) ++shared;
    mutex.Unlock();
  });
}

void ConditionVariableOrders() {
  absl::CondVar changed;
  const auto wait = [&](auto&& wait_once) {
    absl::MutexLock lock(&mutex);
    while (!is_written) wait_once();
    ++shared;
  };
  Together(
      [&] {
        WriteAndSay();
        changed.SignalAll();
      },
      [&] {
        wait([&] { changed.WaitWithTimeout(&mutex, kLong); });
        wait([&] { changed.WaitWithDeadline(&mutex, absl::InfiniteFuture()); });
        wait([&] { changed.Wait(&mutex); });
      });
}

void NotificationOrders() {
  absl::Notification said;
  Together(
      [&] {
        Write();
        said.Notify();
      },
      [&] {
        said.WaitForNotification();
        Write();
      });
}

void NotificationWithTimeoutOrders() {
  absl::Notification said;
  Together(
      [&] {
        Write();
        said.Notify();
      },
      [&] {
        if (said.WaitForNotificationWithTimeout(kLong)) Write();
        if (said.WaitForNotificationWithDeadline(absl::InfiniteFuture())) Write();
      });
}

void BlockingCounterOrders() {
  absl::BlockingCounter counter(1);
  Together(
      [&] {
        Write();
        counter.DecrementCount();
      },
      [&] {
        counter.Wait();
        Write();
      });
}

constexpr struct {
  std::string_view name;
  void (*run)();
} kFaults[] = {
    {"race", Race},
    {"race_of_a_reader_who_writes", RaceOfAReaderWhoWrites},
    {"race_beside_a_mutex", RaceBesideAMutex},
    {"race_behind_a_notification", RaceBehindANotification},
    {"locks_in_both_orders", LocksInBothOrders},
    {"heap_overflow", HeapOverflow},
    {"use_after_free", UseAfterFree},
    {"leak", Leak},
    {"signed_overflow", SignedOverflow},
    {"nothing", Nothing},
    {"mutex", MutexOrders},
    {"standard_mutex", StandardMutexOrders},
    {"try_lock", TryLockOrders},
    {"readers", ReadersOrder},
    {"await", AwaitOrders},
    {"await_with_timeout", AwaitWithTimeoutOrders},
    {"lock_when", LockWhenOrders},
    {"condition_variable", ConditionVariableOrders},
    {"notification", NotificationOrders},
    {"notification_with_timeout", NotificationWithTimeoutOrders},
    {"blocking_counter", BlockingCounterOrders},
};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& fault : kFaults) {
    if (argc == 2 && fault.name == argv[1]) {
      fault.run();
      return 0;
    }
  }
  std::fprintf(stderr, "usage: planted_fault NAME, one of:");
  for (const auto& fault : kFaults) std::fprintf(stderr, " %s", fault.name.data());
  std::fprintf(stderr, "\n");
  return 2;
}
