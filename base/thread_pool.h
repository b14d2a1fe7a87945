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
// moment, then sleeps: a pass of a small model consists of dozens of bursts of about ten
// microseconds, and waking a sleeping thread costs as much as one of them. If a thread has not
// begun, for example because other processes share the cores, the caller does not wait for it but
// does its part too.
//
// Thread-compatible: one Run at a time.
class ThreadPool {
 public:
  // The caller of Run is one of the threads. Throws std::system_error, after ending the threads
  // that were started, if the system cannot start more threads. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(t) once for every t in [0, num_threads()): 0 on the caller's thread, the others each
  // on their own thread or, after body(0), on the caller's. Returns when all calls have returned.
  // If calls throw, for example std::bad_alloc, rethrows the first exception then. `body` must not
  // call Run, and body(t) must not wait for another call unless t is 0.
  void Run(absl::FunctionRef<void(int)> body);

 private:
  void Work(int thread);

  // The data that a worker reads when there is new work, in one cache line: fetching another line
  // from the caller's core would cost a tenth of a microsecond or more.
  struct alignas(64) Order {
    std::atomic<uint32_t> epoch{0};  // incremented after the other fields are written
    std::atomic<bool> is_last{false};
    std::optional<absl::FunctionRef<void(int)>> body;  // read after claiming a share
  };
  // One worker's share of every Run. The thread that sets `claimed` to the current epoch does the
  // share: the worker, or the caller if it finishes its own before the worker has begun.
  struct alignas(64) Slot {
    std::atomic<uint32_t> claimed{0};
    std::atomic<uint32_t> finished{0};  // the last epoch whose share the worker itself finished

    bool Claim(uint32_t epoch) {
      uint32_t last = epoch - 1;
      return claimed.compare_exchange_strong(last, epoch, std::memory_order_acq_rel);
    }
  };
  void Do(int thread);  // runs the share of `thread` of the work in `order_`
  void Stop();

  std::vector<std::thread> workers_;
  std::unique_ptr<Slot[]> slots_;  // worker t has slot t - 1
  Order order_;
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;  // written only by the thread that set has_failed_
};

// Part `index`, [begin, end), of `count` items that are divided into `parts` contiguous parts,
// whose sizes differ by at most one.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Share ShareOf(int64_t count, int parts, int index) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace tandem

#endif  // TANDEM_BASE_THREAD_POOL_H_
