// Runs kernels on the host, block by block and thread by thread, and checks their accesses.
//
// It reports the first fault of a launch: an access outside allocated memory, a read of unwritten
// shared memory, two accesses that no barrier orders (or SyncWarp within a warp), a read of a copy
// before the wait for it, a collective that the threads reach at different places, or an access
// that is too early: before a kernel waits for earlier kernels, it can only read memory that no
// kernel has written since the host waited for all kernels. Copies are made when a thread waits for
// them, and not before.
//
// A phase barrier (simt.h) orders what a thread did before it arrived before what another does
// after it has waited, and nothing else. Reported too: a wrong number of bytes, a phase that cannot
// end, a barrier that no fence has shown to bulk copies, and threads that all wait.
//
// The blocks of a cluster run at the same time. Also reported: a block that may end before others
// have arrived at its phase barriers, and a wait for such an arrival as if it were of this block.
//
// A counter of the device orders what a thread and, before their last barrier, its block did
// before what threads do that add to the counter later. Their blocks pass it on by barriers and
// SyncWarp, and not by phase barriers.
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
#include "tests/simt/phase_barriers.h"
#include "tests/simt/tensor_core_arithmetic.h"
#include "tests/simt/warpgroups.h"
#include "tests/simt/watched_memory.h"

namespace tandem::simt {

using Where = std::source_location;

// The value that a lane gives to a collective, or gets from it.
struct LaneValue {
  alignas(16) std::byte bytes[48];
};
using LaneValues = std::array<LaneValue, kWarpThreads>;

// Thread-compatible: one host thread.
class Machine {
 public:
  static Machine& Get();

  // ---- Called by the host ----

  // Returns memory that reads as NaN in every type.
  void* Allocate(size_t bytes);
  void Free(void* data);
  // Copies in order with kernels: after earlier kernels and before later ones.
  void CopyBetweenKernels(const void* from, void* to, size_t bytes);
  // The host has waited for all kernels.
  void EndKernels() { ended_ = clock_.now; }
  // Runs `body` with the block's shared memory for every thread. Returns the first fault, or an
  // empty string. `num_threads` must be a multiple of the warp size.
  std::string Run(const cuda::LaunchShape& shape, int num_threads,
                  std::function<void(unsigned char* shared)> body,
                  const TensorCore& tensor_core = kHopper);

  // ---- Called by device threads ----
  int thread() const { return current_ - first_thread_; }
  const std::array<int, 3>& block() const { return block_->at; }
  int cluster_rank() const { return first_thread_ / num_threads_; }
  const TensorCore& tensor_core() const { return tensor_core_; }
  void Barrier(const Where& where);
  void ClusterBarrier(const Where& where);
  void WaitForKernelsBefore() { threads_[current_].has_waited = true; }
  // Waits until all lanes have given a value. `combine` then computes the value that each lane
  // gets.
  LaneValue Collective(const LaneValue& given, const Where& where,
                       const std::function<void(const LaneValues&, LaneValues*)>& combine,
                       bool orders_memory = false);
  // Returns whether the thread is allowed this access. A forbidden access is a fault.
  bool Access(const void* at, size_t bytes, AccessKind kind, const Where& where);
  void CopyAsync(void* shared, const void* global, size_t bytes, const Where& where);
  void CopyCommit();
  void CopyWait(int groups_left, const Where& where);
  // The block's phase barriers, by address.
  void InitPhases(const void* at, int arrivals, const Where& where);
  void FencePhases() { block_->phases.Fence(current_); }
  void FenceBulkCopies() { clock_.Fence(current_); }
  void Arrive(const void* at, size_t expected_bytes, const Where& where);
  // At the barrier at the same place of block `rank` of the cluster.
  void ArriveAtBlock(int rank, const void* at, const Where& where);
  void WaitForPhase(const void* at, int parity, bool of_cluster, const Where& where);
  void BulkCopy(void* shared, const void* global, size_t bytes, const void* at, const Where& where);
  // To the same place of each block of `ranks`, a bit for each.
  void BulkCopyToBlocks(uint32_t ranks, void* shared, const void* global, size_t bytes,
                        const void* at, const Where& where);
  // Adds to a counter of the device. Returns the number before.
  uint32_t Count(uint32_t* counter, uint32_t value, const Where& where);
  Warpgroups& warpgroups() { return block_->warpgroups; }
  // Records the first fault of a launch.
  void Fault(const std::string& what, const Where& where);

 private:
  enum class State { kRuns, kAtBarrier, kAtClusterBarrier, kAtCollective, kAtPhase, kLeft };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    State state = State::kRuns;
    bool has_waited = false;               // for earlier kernels
    Where where;                           // place at which it waits
    std::deque<std::vector<Copy>> groups;  // copies in flight
    std::vector<Copy> open_group;
    const void* waits_for = nullptr;  // a phase barrier
    int parity = 0;
  };
  struct Warp {
    int arrived = 0;
    LaneValues given, got;
  };
  struct Block {
    std::array<int, 3> at = {0, 0, 0};
    int64_t index = 0;
    std::unique_ptr<WatchedMemory> shared;
    PhaseBarriers phases;
    Warpgroups warpgroups;
    int num_at_barrier = 0;
    uint64_t barrier = 0;                // Clock::barrier, while threads of other blocks run
    std::map<int, uint64_t> reached_by;  // when threads of other blocks last arrived
  };

  void SelectBlock(int rank);
  void RunCluster(const std::function<void()>& body);
  bool RunThreads(const std::function<void()>& body);
  void ReportDeadlock();
  void CheckEnd(const Block& block);
  // Lets threads go on from a barrier that all of them have reached.
  void EndBarrier(int first, int count, const Where& where);
  // Returns whether the phase that the thread waits for has ended, after its copies if only these
  // were missing.
  bool HasPhaseEnded(Thread& thread);
  PhaseBarrier* PhasesAt(Block& block, const void* at, const Where& where);
  void ArriveAt(Block& block, const void* at, size_t expected_bytes, const Where& where);
  void BeginBulkCopy(Block& block, const Copy& copy, const void* at, const Where& where);
  // Returns the fault of an access to a block's shared memory, or an empty string.
  std::string AccessShared(Block& block, const void* at, size_t bytes, AccessKind kind);
  // The place in the shared memory of block `rank` that `at` is in that of the current one.
  std::byte* MapTo(int rank, const void* at) const {
    return blocks_[rank].shared->data() +
           (static_cast<const std::byte*>(at) - block_->shared->data());
  }
  WatchedMemory* MemoryAt(const void* at);
  ThreadId Current() const { return {block_->index, current_}; }

  std::map<const std::byte*, std::unique_ptr<WatchedMemory>> allocated_;
  WatchedMemory* last_found_ = nullptr;

  // State of the current launch and cluster.
  std::string fault_;
  Clock clock_;
  uint64_t ended_ = 0;  // when the host last waited for all kernels
  std::vector<std::byte> shared_storage_;
  TensorCore tensor_core_ = kHopper;
  int num_threads_ = 1;             // of a block
  std::vector<Block> blocks_;       // of the cluster
  Block* block_ = nullptr;          // whose thread runs
  int first_thread_ = 0;            // of that block
  int current_ = -1;                // of all threads of the cluster
  int num_at_cluster_barrier_ = 0;  // threads
  std::vector<Thread> threads_;     // of the cluster
  std::vector<Warp> warps_;
  std::map<const void*, Pasts> counters_;
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_MACHINE_H_
