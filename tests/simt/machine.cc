#include "tests/simt/machine.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tandem::simt {
namespace {

// Padding around allocations, so that an access that misses one does not hit another.
constexpr size_t kGuardBytes = 4096;
// Bulk copies have multiples of this many bytes.
constexpr size_t kCopyUnit = 16;

std::string LineOf(const Where& where) {
  std::string_view file = where.file_name();
  file = file.substr(file.find_last_of('/') + 1);
  return std::string(file) + ":" + std::to_string(where.line());
}

}  // namespace

Machine& Machine::Get() {
  static Machine machine;
  return machine;
}

// ---- Memory ----

void* Machine::Allocate(size_t bytes) {
  auto* const storage = static_cast<std::byte*>(std::malloc(bytes + 2 * kGuardBytes));
  if (storage == nullptr) return nullptr;
  std::byte* const data = storage + kGuardBytes;
  std::memset(storage, 0xFF, bytes + 2 * kGuardBytes);
  allocated_[data] = std::make_unique<WatchedMemory>("an allocation of " + std::to_string(bytes),
                                                     data, bytes, false);
  return data;
}

void Machine::Free(void* data) {
  const auto found = allocated_.find(static_cast<std::byte*>(data));
  TANDEM_CHECK(found != allocated_.end());
  last_found_ = nullptr;
  allocated_.erase(found);
  std::free(static_cast<std::byte*>(data) - kGuardBytes);
}

void Machine::CopyBetweenKernels(const void* from, void* to, size_t bytes) {
  std::memcpy(to, from, bytes);
  if (WatchedMemory* const memory = MemoryAt(to)) memory->ForgetWrites(to, bytes);
}

WatchedMemory* Machine::MemoryAt(const void* at) {
  if (block_ != nullptr && block_->shared->Contains(at)) return block_->shared.get();
  if (last_found_ != nullptr && last_found_->Contains(at)) return last_found_;
  auto next = allocated_.upper_bound(static_cast<const std::byte*>(at));
  if (next == allocated_.begin()) return nullptr;
  WatchedMemory* const memory = std::prev(next)->second.get();
  if (!memory->Contains(at)) return nullptr;
  return last_found_ = memory;
}

std::string Machine::AccessShared(Block& block, const void* at, size_t bytes, AccessKind kind) {
  if (Writes(kind) && block.warpgroups.MayRead(at)) {
    return "writes rows that an unfinished product may read";
  }
  return block.shared->Access(at, bytes, kind, Current(), clock_);
}

bool Machine::Access(const void* at, size_t bytes, AccessKind kind, const Where& where) {
  WatchedMemory* const memory = MemoryAt(at);
  std::string wrong;
  if (memory == nullptr) {
    wrong = "is outside of all memory";
  } else if (memory == block_->shared.get()) {
    wrong = AccessShared(*block_, at, bytes, kind);
  } else if (!threads_[current_].has_waited &&
             (kind != AccessKind::kRead || memory->WasWritten(at, bytes, ended_))) {
    wrong = "does not wait for earlier kernels";
  } else {
    wrong = memory->Access(at, bytes, kind, Current(), clock_);
  }
  if (wrong.empty()) return true;
  Fault("access of " + std::to_string(bytes) + " bytes " + wrong, where);
  return false;
}

uint32_t Machine::Count(uint32_t* counter, uint32_t value, const Where& where) {
  if (!Access(counter, sizeof(value), AccessKind::kAtomic, where)) return 0;
  clock_.Count(Current(), &counters_[counter]);
  return std::exchange(*counter, *counter + value);
}

void Machine::CopyAsync(void* shared, const void* global, size_t bytes, const Where& where) {
  if (!Access(global, bytes, AccessKind::kRead, where)) return;
  if (!Access(shared, bytes, AccessKind::kBeginCopy, where)) return;
  if (!block_->shared->Contains(shared)) return Fault("copy to memory that is not shared", where);
  std::memset(shared, 0xFF, bytes);
  threads_[current_].open_group.push_back({shared, global, bytes});
}

void Machine::CopyCommit() {
  Thread& thread = threads_[current_];
  thread.groups.push_back(std::move(thread.open_group));
  thread.open_group.clear();
}

void Machine::CopyWait(int groups_left, const Where& where) {
  auto& groups = threads_[current_].groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    for (const Copy& copy : groups.front()) {
      if (!Access(copy.to, copy.bytes, AccessKind::kEndCopy, where)) continue;
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    groups.pop_front();
  }
}

// ---- Phase barriers ----

void Machine::InitPhases(const void* at, int arrivals, const Where& where) {
  if (!Access(at, sizeof(uint64_t), AccessKind::kWrite, where)) return;
  if (!block_->shared->Contains(at))
    return Fault("a phase barrier outside of shared memory", where);
  PhaseBarrier* const barrier = block_->phases.Add(at);
  if (barrier == nullptr) return Fault("initialises a phase barrier twice", where);
  if (arrivals < 1) return Fault("a phase barrier without arrivals", where);
  clock_.BeginPhases();
  barrier->initialised_by = current_;
  barrier->initialised_at = clock_.now;
  barrier->arrivals = barrier->missing = arrivals;
}

PhaseBarrier* Machine::PhasesAt(Block& block, const void* at, const Where& where) {
  PhaseBarrier* const barrier = block.phases.Find(at);
  if (barrier == nullptr) {
    Fault("uses a phase barrier that is not initialised", where);
    return nullptr;
  }
  const int by = barrier->initialised_by;
  const bool is_ordered = by == current_ ||
                          (&block == block_ && barrier->initialised_at < clock_.barrier) ||
                          clock_.Knows(current_, by, barrier->initialised_at) ||
                          (by / kWarpThreads == current_ / kWarpThreads &&
                           barrier->initialised_at < clock_.warp_sync[by / kWarpThreads]);
  if (is_ordered) return barrier;
  Fault("uses a phase barrier that thread " + std::to_string(by % num_threads_) + " of " +
            (&block == block_ ? "this" : "another") + " block initialises: a race",
        where);
  return nullptr;
}

void Machine::Arrive(const void* at, size_t expected_bytes, const Where& where) {
  ArriveAt(*block_, at, expected_bytes, where);
}

void Machine::ArriveAtBlock(int rank, const void* at, const Where& where) {
  if (rank < 0 || rank >= static_cast<int>(blocks_.size())) {
    return Fault("arrives at a block that the cluster does not have", where);
  }
  Block& block = blocks_[rank];
  if (&block != block_) block.reached_by[current_] = clock_.now;
  ArriveAt(block, MapTo(rank, at), 0, where);
}

void Machine::ArriveAt(Block& block, const void* at, size_t expected_bytes, const Where& where) {
  PhaseBarrier* const barrier = PhasesAt(block, at, where);
  if (barrier == nullptr) return;
  if (barrier->missing == 0) {
    return Fault("arrives at a phase that only waits for its copies", where);
  }
  barrier->is_remote |= &block != block_;
  RaiseTimes(clock_.Release(current_), &barrier->arrived);
  barrier->bytes += static_cast<int64_t>(expected_bytes);
  if (--barrier->missing == 0 && barrier->bytes == 0 && barrier->copies.empty()) {
    barrier->EndPhase();
  }
}

void Machine::BulkCopy(void* shared, const void* global, size_t bytes, const void* at,
                       const Where& where) {
  BeginBulkCopy(*block_, {shared, global, bytes}, at, where);
}

void Machine::BulkCopyToBlocks(uint32_t ranks, void* shared, const void* global, size_t bytes,
                               const void* at, const Where& where) {
  if (ranks == 0 || ranks >> blocks_.size() != 0) {
    return Fault("copies to blocks that the cluster does not have", where);
  }
  for (int rank = 0; rank < static_cast<int>(blocks_.size()); ++rank) {
    if ((ranks >> rank & 1) == 0) continue;
    BeginBulkCopy(blocks_[rank], {MapTo(rank, shared), global, bytes}, MapTo(rank, at), where);
  }
}

void Machine::BeginBulkCopy(Block& block, const Copy& copy, const void* at, const Where& where) {
  PhaseBarrier* const barrier = PhasesAt(block, at, where);
  if (barrier == nullptr) return;
  if (!barrier->is_fenced) {
    return Fault("copies to a phase barrier that no fence has shown to copies", where);
  }
  if (copy.bytes == 0 || copy.bytes % kCopyUnit != 0) {
    return Fault("a bulk copy of " + std::to_string(copy.bytes) + " bytes", where);
  }
  for (size_t i = 0; i < copy.bytes; i += kCopyUnit) {
    auto* const to = static_cast<std::byte*>(copy.to) + i;
    const auto* const from = static_cast<const std::byte*>(copy.from) + i;
    if (!Access(from, kCopyUnit, AccessKind::kRead, where)) return;
    if (!block.shared->Contains(to)) return Fault("copy to memory that is not shared", where);
    const std::string wrong = AccessShared(block, to, kCopyUnit, AccessKind::kBeginBulkCopy);
    if (!wrong.empty()) {
      return Fault("access of " + std::to_string(kCopyUnit) + " bytes " + wrong, where);
    }
  }
  std::memset(copy.to, 0xFF, copy.bytes);
  barrier->copies.push_back(copy);
}

bool Machine::HasPhaseEnded(Thread& thread) {
  PhaseBarrier& barrier = *block_->phases.Find(thread.waits_for);
  if (barrier.has_ended(thread.parity)) return true;
  if (barrier.missing > 0) return false;
  const int copier = clock_.num_threads() + barrier.index;
  for (const Copy& copy : barrier.copies) {
    for (size_t i = 0; i < copy.bytes; i += kCopyUnit) {
      block_->shared->Access(static_cast<std::byte*>(copy.to) + i, kCopyUnit,
                             AccessKind::kEndBulkCopy, {block_->index, copier}, clock_);
    }
    std::memcpy(copy.to, copy.from, copy.bytes);
    barrier.bytes -= static_cast<int64_t>(copy.bytes);
  }
  if (!barrier.copies.empty()) {
    std::vector<uint64_t> copied(copier + 1);
    copied[copier] = ++clock_.now;
    RaiseTimes(copied, &barrier.arrived);
    barrier.copies.clear();
  }
  if (barrier.bytes < 0) {
    Fault("copies " + std::to_string(-barrier.bytes) + " bytes more than the phase expects",
          thread.where);
    barrier.bytes = 0;
  }
  if (barrier.bytes > 0) return false;
  barrier.EndPhase();
  return barrier.has_ended(thread.parity);
}

void Machine::WaitForPhase(const void* at, int parity, bool of_cluster, const Where& where) {
  const PhaseBarrier* const barrier = PhasesAt(*block_, at, where);
  if (barrier == nullptr) return;
  const int me = current_;
  threads_[me].waits_for = at;
  threads_[me].parity = parity;
  threads_[me].where = where;
  if (!HasPhaseEnded(threads_[me])) {
    threads_[me].state = State::kAtPhase;
    Fiber::Yield();
  }
  clock_.Learn(me, barrier->released);
  if (barrier->is_remote && !of_cluster) {
    Fault("waits for threads of another block as if they were of this one", where);
  }
}

// ---- Threads ----

void Machine::Fault(const std::string& what, const Where& where) {
  if (!fault_.empty()) return;
  const auto& [x, y, z] = block_->at;
  fault_ = "block (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) +
           ") thread " + std::to_string(thread()) + " at " + LineOf(where) + ": " + what;
}

void Machine::Barrier(const Where& where) {
  Thread& thread = threads_[current_];
  thread.state = State::kAtBarrier;
  thread.where = where;
  if (++block_->num_at_barrier < num_threads_) return Fiber::Yield();
  block_->num_at_barrier = 0;
  clock_.Barrier(first_thread_);
  EndBarrier(first_thread_, num_threads_, where);
}

void Machine::ClusterBarrier(const Where& where) {
  Thread& thread = threads_[current_];
  thread.state = State::kAtClusterBarrier;
  thread.where = where;
  if (++num_at_cluster_barrier_ < clock_.num_threads()) return Fiber::Yield();
  num_at_cluster_barrier_ = 0;
  clock_.ClusterBarrier();
  for (Block& block : blocks_) block.barrier = clock_.barrier;
  EndBarrier(0, clock_.num_threads(), where);
}

void Machine::EndBarrier(int first, int count, const Where& where) {
  for (int t = first; t < first + count; ++t) {
    if (threads_[t].where.line() != where.line()) {
      Fault("barrier while another thread is at that of " + LineOf(threads_[t].where), where);
    }
    threads_[t].state = State::kRuns;
  }
}

LaneValue Machine::Collective(const LaneValue& given, const Where& where,
                              const std::function<void(const LaneValues&, LaneValues*)>& combine,
                              bool orders_memory) {
  const int warp_index = current_ / kWarpThreads, lane = current_ % kWarpThreads;
  Warp& warp = warps_[warp_index];
  warp.given[lane] = given;
  threads_[current_].where = where;
  if (++warp.arrived < kWarpThreads) {
    threads_[current_].state = State::kAtCollective;
    Fiber::Yield();
    return warp.got[lane];
  }
  warp.arrived = 0;
  combine(warp.given, &warp.got);
  if (orders_memory) clock_.SyncWarp(warp_index);
  for (int i = 0; i < kWarpThreads; ++i) {
    Thread& other = threads_[warp_index * kWarpThreads + i];
    if (other.where.line() != where.line()) {
      Fault("collective while another lane is at that of " + LineOf(other.where), where);
    }
    other.state = State::kRuns;
  }
  return warp.got[lane];
}

// ---- Blocks ----

std::string Machine::Run(const cuda::LaunchShape& shape, int num_threads,
                         std::function<void(unsigned char* shared)> body,
                         const TensorCore& tensor_core) {
  TANDEM_CHECK(num_threads % kWarpThreads == 0 && shape.x >= 0 && shape.y >= 0 && shape.z >= 0);
  TANDEM_CHECK(shape.cluster >= 1 && shape.x % shape.cluster == 0);
  fault_.clear();
  tensor_core_ = tensor_core;
  num_threads_ = num_threads;
  threads_.resize(size_t{1} * shape.cluster * num_threads);
  for (Thread& thread : threads_) {
    if (thread.fiber == nullptr) thread.fiber = std::make_unique<Fiber>();
  }
  warps_.resize(threads_.size() / kWarpThreads);
  constexpr uintptr_t kAlignment = cuda::kSharedAlignment;
  const size_t block_bytes = (shape.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
  shared_storage_.assign(shape.cluster * block_bytes + kAlignment, std::byte{0xFF});
  auto address = reinterpret_cast<uintptr_t>(shared_storage_.data());
  auto* const shared =
      reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
  block_ = nullptr;
  blocks_.resize(shape.cluster);
  for (int rank = 0; rank < shape.cluster; ++rank) {
    blocks_[rank].shared = std::make_unique<WatchedMemory>(
        "shared memory", shared + rank * block_bytes, shape.shared_bytes, true);
  }
  const std::function<void()> thread_body = [&] {
    body(reinterpret_cast<unsigned char*>(block_->shared->data()));
  };
  clock_.BeginLaunch();
  counters_.clear();
  int64_t index = 0;
  for (int z = 0; z < shape.z; ++z) {
    for (int y = 0; y < shape.y; ++y) {
      for (int x = 0; x < shape.x && fault_.empty(); x += shape.cluster) {
        for (int rank = 0; rank < shape.cluster; ++rank) {
          blocks_[rank].at = {x + rank, y, z};
          blocks_[rank].index = index++;
        }
        RunCluster(thread_body);
      }
    }
  }
  return fault_;
}

void Machine::SelectBlock(int rank) {
  if (block_ == &blocks_[rank]) return;
  if (block_ != nullptr) block_->barrier = clock_.barrier;
  block_ = &blocks_[rank];
  clock_.barrier = block_->barrier;
  first_thread_ = rank * num_threads_;
}

void Machine::RunCluster(const std::function<void()>& body) {
  const int num_blocks = static_cast<int>(blocks_.size());
  clock_.BeginBlocks(blocks_[0].index, num_blocks, num_threads_);
  for (int rank = 0; rank < num_blocks; ++rank) {
    Block& block = blocks_[rank];
    block.phases.Clear(rank, num_blocks);
    block.warpgroups.BeginBlock(num_threads_);
    block.num_at_barrier = 0;
    block.barrier = clock_.barrier;
    block.reached_by.clear();
  }
  SelectBlock(0);
  clock_.barrier = block_->barrier;
  num_at_cluster_barrier_ = 0;
  for (Warp& warp : warps_) warp.arrived = 0;
  for (Thread& thread : threads_) {
    thread.state = State::kRuns;
    thread.has_waited = false;
    thread.groups.clear();
    thread.open_group.clear();
  }
  if (RunThreads(body)) {
    for (int rank = 0; rank < num_blocks; ++rank) {
      SelectBlock(rank);
      CheckEnd(blocks_[rank]);
    }
    return;
  }
  ReportDeadlock();
  for (Thread& thread : threads_) thread.fiber->Abandon();
}

// A block, and its shared memory, ends when its last thread has left.
void Machine::CheckEnd(const Block& block) {
  const Where where = Where::current();
  if (block.phases.HasCopies()) {
    Fault("the block ends with bulk copies that no thread waited for", where);
  }
  if (const std::string wrong = block.warpgroups.EndBlock(); !wrong.empty()) Fault(wrong, where);
  for (const auto& [other, time] : block.reached_by) {
    bool knows = false;
    for (int t = first_thread_; t < first_thread_ + num_threads_; ++t) {
      knows |= clock_.Knows(t, other, time);
    }
    if (knows) continue;
    Fault("the block may end before thread " + std::to_string(other % num_threads_) +
              " of another block has arrived at its phase barrier",
          where);
  }
}

// Returns false if some threads wait for an event that cannot happen.
bool Machine::RunThreads(const std::function<void()>& body) {
  const int num_threads = clock_.num_threads();
  int num_left = 0;
  for (bool progress = true; progress && num_left < num_threads;) {
    progress = false;
    for (int t = 0; t < num_threads; ++t) {
      Thread& thread = threads_[t];
      if (t % num_threads_ == 0) SelectBlock(t / num_threads_);
      current_ = t;
      if (thread.state == State::kAtPhase && HasPhaseEnded(thread)) thread.state = State::kRuns;
      if (thread.state != State::kRuns) continue;
      progress = true;
      if (!thread.fiber->Resume(body)) continue;
      thread.state = State::kLeft;
      ++num_left;
      if (!thread.has_waited) {
        Fault("leaves before earlier kernels have ended", Where::current());
      }
      if (!thread.open_group.empty() || std::any_of(thread.groups.begin(), thread.groups.end(),
                                                    [](const auto& g) { return !g.empty(); })) {
        Fault("leaves with copies that it did not wait for", Where::current());
      }
    }
  }
  return num_left == num_threads;
}

void Machine::ReportDeadlock() {
  int left = -1, waits = -1;
  for (int t = 0; t < clock_.num_threads(); ++t) {
    (threads_[t].state == State::kLeft ? left : waits) = t;
  }
  SelectBlock(waits / num_threads_);
  current_ = waits;
  if (threads_[waits].state == State::kAtPhase) {
    const PhaseBarrier& barrier = *block_->phases.Find(threads_[waits].waits_for);
    return Fault("waits for a phase that cannot end: " + barrier.Missing(), threads_[waits].where);
  }
  const State state = threads_[waits].state;
  std::string what = state == State::kAtBarrier          ? "waits at a barrier"
                     : state == State::kAtClusterBarrier ? "waits at a barrier of the cluster"
                                                         : "waits for its warp";
  what += left >= 0 ? ", but thread " + std::to_string(left % num_threads_) + " has left"
                    : ", but others wait elsewhere";
  Fault(what, threads_[waits].where);
}

}  // namespace tandem::simt
