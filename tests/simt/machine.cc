#include "tests/simt/machine.h"

#include <algorithm>
#include <cstring>
#include <string_view>

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
  if (shared_ != nullptr && shared_->Contains(at)) return shared_.get();
  if (last_found_ != nullptr && last_found_->Contains(at)) return last_found_;
  auto next = allocated_.upper_bound(static_cast<const std::byte*>(at));
  if (next == allocated_.begin()) return nullptr;
  WatchedMemory* const memory = std::prev(next)->second.get();
  if (!memory->Contains(at)) return nullptr;
  return last_found_ = memory;
}

bool Machine::Access(const void* at, size_t bytes, AccessKind kind, const Where& where) {
  WatchedMemory* const memory = MemoryAt(at);
  std::string wrong;
  if (memory == nullptr) {
    wrong = "is outside of all memory";
  } else if (memory != shared_.get() && !threads_[current_].has_waited &&
             (kind != AccessKind::kRead || memory->WasWritten(at, bytes, ended_))) {
    wrong = "does not wait for earlier kernels";
  } else if (memory == shared_.get() && Writes(kind) && warpgroups_.MayRead(at)) {
    wrong = "writes rows that an unfinished product may read";
  } else {
    wrong = memory->Access(at, bytes, kind, Current(), clock_);
  }
  if (wrong.empty()) return true;
  Fault("access of " + std::to_string(bytes) + " bytes " + wrong, where);
  return false;
}

void Machine::CopyAsync(void* shared, const void* global, size_t bytes, const Where& where) {
  if (!Access(global, bytes, AccessKind::kRead, where)) return;
  if (!Access(shared, bytes, AccessKind::kBeginCopy, where)) return;
  if (!shared_->Contains(shared)) return Fault("copy to memory that is not shared", where);
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
  if (!shared_->Contains(at)) return Fault("a phase barrier outside of shared memory", where);
  PhaseBarrier* const barrier = phases_.Add(at);
  if (barrier == nullptr) return Fault("initialises a phase barrier twice", where);
  if (arrivals < 1) return Fault("a phase barrier without arrivals", where);
  clock_.BeginPhases();
  barrier->initialised_by = current_;
  barrier->initialised_at = clock_.now;
  barrier->arrivals = barrier->missing = arrivals;
}

PhaseBarrier* Machine::PhasesAt(const void* at, const Where& where) {
  PhaseBarrier* const barrier = phases_.Find(at);
  if (barrier == nullptr) {
    Fault("uses a phase barrier that is not initialised", where);
    return nullptr;
  }
  const int by = barrier->initialised_by;
  const bool is_ordered = by == current_ || barrier->initialised_at < clock_.barrier ||
                          clock_.Knows(current_, by, barrier->initialised_at) ||
                          (by / kWarpThreads == current_ / kWarpThreads &&
                           barrier->initialised_at < clock_.warp_sync[by / kWarpThreads]);
  if (is_ordered) return barrier;
  Fault("uses a phase barrier that thread " + std::to_string(by) + " initialises: a race", where);
  return nullptr;
}

void Machine::Arrive(const void* at, size_t expected_bytes, const Where& where) {
  PhaseBarrier* const barrier = PhasesAt(at, where);
  if (barrier == nullptr) return;
  if (barrier->missing == 0) {
    return Fault("arrives at a phase that only waits for its copies", where);
  }
  RaiseTimes(clock_.Release(current_), &barrier->arrived);
  barrier->bytes += static_cast<int64_t>(expected_bytes);
  if (--barrier->missing == 0 && barrier->bytes == 0 && barrier->copies.empty()) {
    barrier->EndPhase();
  }
}

void Machine::BulkCopy(void* shared, const void* global, size_t bytes, const void* at,
                       const Where& where) {
  PhaseBarrier* const barrier = PhasesAt(at, where);
  if (barrier == nullptr) return;
  if (!barrier->is_fenced) {
    return Fault("copies to a phase barrier that no fence has shown to copies", where);
  }
  if (bytes == 0 || bytes % kCopyUnit != 0) {
    return Fault("a bulk copy of " + std::to_string(bytes) + " bytes", where);
  }
  for (size_t i = 0; i < bytes; i += kCopyUnit) {
    auto* const to = static_cast<std::byte*>(shared) + i;
    const auto* const from = static_cast<const std::byte*>(global) + i;
    if (!Access(from, kCopyUnit, AccessKind::kRead, where)) return;
    if (!Access(to, kCopyUnit, AccessKind::kBeginBulkCopy, where)) return;
    if (!shared_->Contains(to)) return Fault("copy to memory that is not shared", where);
  }
  std::memset(shared, 0xFF, bytes);
  barrier->copies.push_back({shared, global, bytes});
}

bool Machine::HasPhaseEnded(Thread& thread) {
  PhaseBarrier& barrier = *phases_.Find(thread.waits_for);
  if (barrier.has_ended(thread.parity)) return true;
  if (barrier.missing > 0) return false;
  const int copier = num_threads_ + barrier.index;
  for (const Copy& copy : barrier.copies) {
    for (size_t i = 0; i < copy.bytes; i += kCopyUnit) {
      shared_->Access(static_cast<std::byte*>(copy.to) + i, kCopyUnit, AccessKind::kEndBulkCopy,
                      {block_index_, copier}, clock_);
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

void Machine::WaitForPhase(const void* at, int parity, const Where& where) {
  if (PhasesAt(at, where) == nullptr) return;
  const int me = current_;
  threads_[me].waits_for = at;
  threads_[me].parity = parity;
  threads_[me].where = where;
  if (!HasPhaseEnded(threads_[me])) {
    threads_[me].state = State::kAtPhase;
    Fiber::Yield();
  }
  clock_.Learn(me, phases_.Find(at)->released);
}

// ---- Threads ----

void Machine::Fault(const std::string& what, const Where& where) {
  if (!fault_.empty()) return;
  fault_ = "block (" + std::to_string(block_[0]) + ", " + std::to_string(block_[1]) + ", " +
           std::to_string(block_[2]) + ") thread " + std::to_string(current_) + " at " +
           LineOf(where) + ": " + what;
}

void Machine::Barrier(const Where& where) {
  Thread& thread = threads_[current_];
  thread.state = State::kAtBarrier;
  thread.where = where;
  if (++num_at_barrier_ < num_threads_) return Fiber::Yield();
  num_at_barrier_ = 0;
  clock_.Barrier();
  for (Thread& other : threads_) {
    if (other.where.line() != where.line()) {
      Fault("barrier while another thread is at that of " + LineOf(other.where), where);
    }
    other.state = State::kRuns;
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
  fault_.clear();
  tensor_core_ = tensor_core;
  num_threads_ = num_threads;
  threads_.resize(num_threads);
  for (Thread& thread : threads_) {
    if (thread.fiber == nullptr) thread.fiber = std::make_unique<Fiber>();
  }
  warps_.resize(num_threads / kWarpThreads);
  shared_storage_.assign(shape.shared_bytes + cuda::kSharedAlignment, std::byte{0xFF});
  auto address = reinterpret_cast<uintptr_t>(shared_storage_.data());
  constexpr uintptr_t kAlignment = cuda::kSharedAlignment;
  auto* const shared =
      reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
  shared_ = std::make_unique<WatchedMemory>("shared memory", shared, shape.shared_bytes, true);
  const std::function<void()> thread_body = [&] { body(reinterpret_cast<unsigned char*>(shared)); };
  clock_.BeginLaunch();
  block_index_ = 0;
  for (int z = 0; z < shape.z; ++z) {
    for (int y = 0; y < shape.y; ++y) {
      for (int x = 0; x < shape.x && fault_.empty(); ++x, ++block_index_) {
        block_ = {x, y, z};
        RunBlock(thread_body);
      }
    }
  }
  return fault_;
}

void Machine::RunBlock(const std::function<void()>& body) {
  clock_.BeginBlock(num_threads_ / kWarpThreads);
  phases_.Clear();
  warpgroups_.BeginBlock(num_threads_);
  num_at_barrier_ = 0;
  for (Warp& warp : warps_) warp.arrived = 0;
  for (Thread& thread : threads_) {
    thread.state = State::kRuns;
    thread.has_waited = false;
    thread.groups.clear();
    thread.open_group.clear();
  }
  if (RunThreads(body)) {
    if (phases_.HasCopies()) {
      Fault("the block ends with bulk copies that no thread waited for", Where::current());
    }
    if (const std::string wrong = warpgroups_.EndBlock(); !wrong.empty()) {
      Fault(wrong, Where::current());
    }
    return;
  }
  ReportDeadlock();
  for (Thread& thread : threads_) thread.fiber->Abandon();
}

// Returns false if some threads wait for an event that cannot happen.
bool Machine::RunThreads(const std::function<void()>& body) {
  int num_left = 0;
  for (bool progress = true; progress && num_left < num_threads_;) {
    progress = false;
    for (int t = 0; t < num_threads_; ++t) {
      Thread& thread = threads_[t];
      if (thread.state == State::kAtPhase && HasPhaseEnded(thread)) thread.state = State::kRuns;
      if (thread.state != State::kRuns) continue;
      progress = true;
      current_ = t;
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
  return num_left == num_threads_;
}

void Machine::ReportDeadlock() {
  int left = -1, waits = -1;
  for (int t = 0; t < num_threads_; ++t) (threads_[t].state == State::kLeft ? left : waits) = t;
  current_ = waits;
  if (threads_[waits].state == State::kAtPhase) {
    const PhaseBarrier& barrier = *phases_.Find(threads_[waits].waits_for);
    return Fault("waits for a phase that cannot end: " + barrier.Missing(), threads_[waits].where);
  }
  const bool at_barrier = threads_[waits].state == State::kAtBarrier;
  std::string what = at_barrier ? "waits at a barrier" : "waits for its warp";
  what += left >= 0 ? ", but thread " + std::to_string(left) + " has left"
                    : ", but others wait elsewhere";
  Fault(what, threads_[waits].where);
}

}  // namespace tandem::simt
