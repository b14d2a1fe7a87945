#ifndef TANDEM_BASE_THREAD_POOL_H_
#define TANDEM_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem {

// A fixed team of threads for work that comes in short bursts. Between bursts the team spins for a
// moment, then sleeps: a pass of a small model is dozens of bursts of some ten microseconds, and
// waking a sleeping thread costs as much as one of them. Who calls does not wait for a thread that
// has not begun, as where cores are shared with other processes, but does its part too.
//
// Thread-compatible: one Run at a time.
class ThreadPool {
 public:
  // REQUIRES: num_threads >= 1. The caller of Run is one of them. std::system_error, with nothing
  // left behind, where the system starts no more threads.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(t) once for every t in [0, num_threads()), 0 on the caller's thread, the others
  // each on a thread of its own or, after that, on the caller's; returns when all have returned.
  // What the first of them to fail throws, such as std::bad_alloc, comes out of here then.
  // `body` must not call Run, and no t but 0 may wait for another.
  void Run(absl::FunctionRef<void(int)> body);

 private:
  void Work(int thread);

  // What a worker reads when there is new work, in one cache line: each further line that it had to
  // fetch from the caller's core cost a tenth of a microsecond or more.
  struct alignas(64) Order {
    std::atomic<uint32_t> epoch{0};  // moves when the rest is written
    std::atomic<bool> is_last{false};
    std::optional<absl::FunctionRef<void(int)>> body;  // read by who has claimed a share
  };
  // One worker's share of every Run. It belongs to whoever moves `claimed` to the present epoch:
  // the worker, or the caller if it is done with its own before the worker has begun.
  struct alignas(64) Slot {
    std::atomic<uint32_t> claimed{0};
    std::atomic<uint32_t> finished{0};  // the last epoch that the worker, not the caller, finished

    bool Claim(uint32_t epoch) {
      uint32_t last = epoch - 1;
      return claimed.compare_exchange_strong(last, epoch, std::memory_order_acq_rel);
    }
  };
  void Do(int thread);  // its share of what stands in `order_`
  void Stop();

  std::vector<std::thread> workers_;
  std::unique_ptr<Slot[]> slots_;  // of worker t at t - 1
  Order order_;
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;  // of whoever set has_failed_
};

// [begin, end) of part `index` of `count` items shared out over `parts`, sizes differing by at most
// one, in order.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Share ShareOf(int64_t count, int parts, int index) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace tandem

#endif  // TANDEM_BASE_THREAD_POOL_H_
