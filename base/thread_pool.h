#ifndef TANDEM_BASE_THREAD_POOL_H_
#define TANDEM_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem {

// A fixed team of threads for work that comes in short bursts. Between bursts the team spins for a
// moment, then sleeps: a pass of a small model is dozens of bursts of some ten microseconds, and
// waking a sleeping thread costs as much as one of them.
//
// Thread-compatible: one Run at a time.
class ThreadPool {
 public:
  // REQUIRES: num_threads >= 1. The caller of Run is one of them.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(t) once for every t in [0, num_threads()), each on its own thread, 0 on the
  // caller's; returns when all have returned. `body` must not throw and must not call Run.
  void Run(absl::FunctionRef<void(int)> body);

 private:
  void Work(int thread);

  // What a worker reads when there is new work, in one cache line: each further line that it had to
  // fetch from the caller's core cost a tenth of a microsecond or more.
  struct alignas(64) Order {
    std::atomic<uint32_t> epoch{0};  // moves when the rest is written
    bool is_last = false;
    std::optional<absl::FunctionRef<void(int)>> body;
  };
  void Give();  // what stands in `order_`

  std::vector<std::thread> workers_;
  Order order_;
  alignas(64) std::atomic<int32_t> unfinished_{0};
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

// Cores of this machine that this process may use, hyperthreads of one core counted once; at
// least 1.
int NumPhysicalCores();

}  // namespace tandem

#endif  // TANDEM_BASE_THREAD_POOL_H_
