// Runs kernels on the host, block by block and thread by thread, and watches them.
//
// It reports the first fault of a launch: an access outside of memory that was allocated, shared
// memory that is read before somebody wrote it, an access that is not ordered with another
// thread's by a barrier (or SyncWarp within a warp), a copy that is read before it was waited for,
// a collective that not all threads reach at the same place, or what a kernel does too early:
// before it waited for the kernels before it, it may but read what none ever wrote. Copies are made
// when they are waited for, and not before.
#ifndef TANDEM_TESTS_SIMT_MACHINE_H_
#define TANDEM_TESTS_SIMT_MACHINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/cuda/operations.h"
#include "tests/simt/fiber.h"
#include "tests/simt/tensor_core_arithmetic.h"
#include "tests/simt/watched_memory.h"

namespace tandem::simt {

using Where = std::source_location;

// What lanes give to a collective and get from it.
struct LaneValue {
  alignas(16) std::byte bytes[48];
};
using LaneValues = std::array<LaneValue, kWarpThreads>;

// Thread-compatible: one host thread.
class Machine {
 public:
  static Machine& Get();

  // ---- For the host ----
  // Contents are NaN, whatever one reads them as.
  void* Allocate(size_t bytes);
  void Free(void* data);
  // A copy between kernels, which waits for those before and for which those behind wait.
  void CopyBetweenKernels(const void* from, void* to, size_t bytes);
  // Runs `body` with the block's shared memory for every thread. Returns the first fault, or
  // nothing. `num_threads` is a multiple of the warp's size.
  std::string Run(const cuda::LaunchShape& shape, int num_threads,
                  std::function<void(unsigned char* shared)> body,
                  const TensorCore& tensor_core = kHopper);

  // ---- For threads ----
  int thread() const { return current_; }
  const std::array<int, 3>& block() const { return block_; }
  const TensorCore& tensor_core() const { return tensor_core_; }
  void Barrier(const Where& where);
  void WaitForKernelsBefore() { threads_[current_].has_waited = true; }
  // Waits until all lanes have given; `combine` then makes what each gets.
  LaneValue Collective(const LaneValue& given, const Where& where,
                       const std::function<void(const LaneValues&, LaneValues*)>& combine,
                       bool orders_memory = false);
  // Whether a thread may access; if not, that is a fault.
  bool Access(const void* at, size_t bytes, AccessKind kind, const Where& where);
  void CopyAsync(void* shared, const void* global, size_t bytes, const Where& where);
  void CopyCommit();
  void CopyWait(int groups_left, const Where& where);

 private:
  enum class State { kRuns, kAtBarrier, kAtCollective, kLeft };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    State state = State::kRuns;
    bool has_waited = false;               // for the kernels before
    Where where;                           // it waits
    std::deque<std::vector<Copy>> groups;  // of copies on their way
    std::vector<Copy> open_group;
  };
  struct Warp {
    int arrived = 0;
    LaneValues given, got;
  };

  void RunBlock(const std::function<void()>& body);
  bool RunThreads(const std::function<void()>& body);
  void ReportThoseWhoWait();
  void Fault(const std::string& what, const Where& where);
  WatchedMemory* MemoryAt(const void* at);
  ThreadId Current() const { return {block_index_, current_}; }

  std::map<const std::byte*, std::unique_ptr<WatchedMemory>> allocated_;
  WatchedMemory* last_found_ = nullptr;

  // Of the launch and block that run.
  std::string fault_;
  Clock clock_;
  std::vector<std::byte> shared_storage_;
  std::unique_ptr<WatchedMemory> shared_;
  std::array<int, 3> block_ = {0, 0, 0};
  int64_t block_index_ = 0;
  TensorCore tensor_core_ = kHopper;
  int num_threads_ = 0;
  int current_ = -1;
  int num_at_barrier_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_MACHINE_H_
