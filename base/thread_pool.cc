#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {
namespace {

// How long to wait before sleeping: longer than the host's work between two operations or two
// passes (some 20 us), shorter than a scheduling quantum.
constexpr std::chrono::microseconds kSpinTime{200};
// Loads in a row, some ten microseconds, before the core is offered to others: on a machine with
// more runnable threads than cores, the one waited for may need it.
constexpr int kSpinsBeforeYield = 16384;

// Waits until `value` differs from `old`; returns what it became.
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

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  TANDEM_CHECK(num_threads >= 1);
  workers_.reserve(num_threads - 1);
  for (int t = 1; t < num_threads; ++t) workers_.emplace_back([this, t] { Work(t); });
}

ThreadPool::~ThreadPool() {
  order_.is_last = true;
  Give();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Give() {
  order_.epoch.fetch_add(1, std::memory_order_release);
  order_.epoch.notify_all();
}

void ThreadPool::Run(absl::FunctionRef<void(int)> body) {
  if (workers_.empty()) return body(0);
  unfinished_.store(static_cast<int32_t>(workers_.size()), std::memory_order_relaxed);
  order_.body.emplace(body);
  Give();
  body(0);
  for (int32_t left = unfinished_.load(std::memory_order_acquire); left != 0;) {
    left = AwaitChange(unfinished_, left);
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    seen = AwaitChange(order_.epoch, seen);
    if (order_.is_last) return;
    (*order_.body)(thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

int NumPhysicalCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  std::set<std::string> cores;  // the sibling lists of the cores, one string each
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file(
        absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = absl::StrCat("cpu", cpu);
    cores.insert(siblings);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace tandem
