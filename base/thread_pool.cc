#include "base/thread_pool.h"

#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/check.h"

namespace tandem {
namespace {

// How long to spin before sleeping: longer than the host's work between two operations or two
// passes (about 20 us), shorter than a scheduling quantum.
constexpr std::chrono::microseconds kSpinTime{200};
// Number of consecutive loads (about ten microseconds) before yielding the core: if the machine has
// more runnable threads than cores, the awaited thread may need it.
constexpr int kSpinsBeforeYield = 16384;

// Waits until `value` differs from `old`. Returns the new value.
template <typename T>
T AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpinsBeforeYield; ++i) {
    if (const T now = value.load(std::memory_order_acquire); now != old) return now;
  }
  const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
  do {
    std::this_thread::yield();
    if (const T now = value.load(std::memory_order_acquire); now != old) return now;
  } while (std::chrono::steady_clock::now() < give_up);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// Stores `now` and wakes the threads that wait for `value` to change. libstdc++ skips the wake-up
// if its count of waiting threads is 0. After a release store it may read that count before the
// store leaves the core's store buffer; a thread that then begins to wait sees the old value and is
// never woken. A sequentially consistent store comes before the read.
template <typename T>
void StoreAndWake(std::atomic<T>* value, T now) {
  value->store(now, std::memory_order_seq_cst);
  value->notify_all();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  TANDEM_CHECK(num_threads >= 1);
  slots_.reset(new Slot[num_threads - 1]);
  workers_.reserve(num_threads - 1);
  absl::Cleanup stop = [this] { Stop(); };
  for (int t = 1; t < num_threads; ++t) workers_.emplace_back([this, t] { Work(t); });
  std::move(stop).Cancel();
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  order_.is_last.store(true, std::memory_order_relaxed);
  StoreAndWake(&order_.epoch, order_.epoch.load(std::memory_order_relaxed) + 1);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(int)> body) {
  if (workers_.empty()) return body(0);
  const uint32_t epoch = order_.epoch.load(std::memory_order_relaxed) + 1;
  order_.body.emplace(body);
  StoreAndWake(&order_.epoch, epoch);
  Do(0);
  for (int t = 1; t < num_threads(); ++t) {
    Slot& slot = slots_[t - 1];
    if (slot.Claim(epoch)) {
      Do(t);
      continue;
    }
    for (uint32_t last = slot.finished.load(std::memory_order_acquire); last != epoch;) {
      last = AwaitChange(slot.finished, last);
    }
  }
  if (has_failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::Do(int thread) {
  try {
    (*order_.body)(thread);
  } catch (...) {
    if (!has_failed_.exchange(true)) failure_ = std::current_exception();
  }
}

void ThreadPool::Work(int thread) {
  Slot& slot = slots_[thread - 1];
  uint32_t epoch = 0;
  for (;;) {
    epoch = AwaitChange(order_.epoch, epoch);
    if (order_.is_last.load(std::memory_order_relaxed)) return;
    if (!slot.Claim(epoch)) continue;
    Do(thread);
    StoreAndWake(&slot.finished, epoch);
  }
}

}  // namespace tandem
