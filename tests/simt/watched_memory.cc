#include "tests/simt/watched_memory.h"

#include <algorithm>

namespace tandem::simt {

void RaiseTimes(const std::vector<uint64_t>& times, std::vector<uint64_t>* into) {
  if (into->size() < times.size()) into->resize(times.size());
  for (size_t i = 0; i < times.size(); ++i) (*into)[i] = std::max((*into)[i], times[i]);
}

void Clock::BeginBlocks(int64_t first, int count, int threads) {
  first_block = first;
  num_blocks = count;
  block_threads = threads;
  block = barrier = ++now;
  warp_sync.assign(num_threads() / kWarpThreads, block);
  fences.assign(num_threads(), 0);
  known.clear();
  pasts.clear();
  if (num_blocks > 1) BeginPhases();
}

void Clock::Share(int first, int count) {
  std::vector<uint64_t> times(num_threads());
  for (int t = first; t < first + count; ++t) RaiseTimes(known[t], &times);
  for (int t = first; t < first + count; ++t) times[t] = now;
  for (int t = first; t < first + count; ++t) known[t] = times;
}

void Clock::SharePasts(int first, int count) {
  if (pasts.empty()) return;
  Pasts all;
  for (int t = first; t < first + count; ++t) {
    all.insert(all.end(), pasts[t].begin(), pasts[t].end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (int t = first; t < first + count; ++t) pasts[t] = all;
}

// Blocks that are alone need no list for a barrier: their threads have the same last one.
void Clock::Barrier(int first) {
  barrier = ++now;
  if (num_blocks > 1) Share(first, block_threads);
  SharePasts(first, block_threads);
}

void Clock::ClusterBarrier() {
  barrier = ++now;
  if (num_blocks > 1) Share(0, num_threads());
  SharePasts(0, num_threads());
}

void Clock::SyncWarp(int warp) {
  warp_sync[warp] = ++now;
  const int first = warp * kWarpThreads;
  SharePasts(first, kWarpThreads);
  if (!has_phases()) return;
  std::vector<uint64_t> times = known[first];
  for (int lane = 1; lane < kWarpThreads; ++lane) RaiseTimes(known[first + lane], &times);
  for (int lane = 0; lane < kWarpThreads; ++lane) known[first + lane] = times;
}

void Clock::BeginPhases() {
  if (!has_phases()) known.resize(warp_sync.size() * kWarpThreads);
}

bool Clock::Knows(int thread, int other, uint64_t time) const {
  if (!has_phases()) return false;
  const std::vector<uint64_t>& times = known[thread];
  return static_cast<size_t>(other) < times.size() && time < times[other];
}

std::vector<uint64_t> Clock::Release(int thread) {
  std::vector<uint64_t> times = known[thread];
  times.resize(std::max(times.size(), known.size()));
  const int warp = thread / kWarpThreads;
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    uint64_t& time = times[warp * kWarpThreads + lane];
    time = std::max(time, warp_sync[warp]);
  }
  times[thread] = ++now;
  return times;
}

void Clock::Learn(int thread, const std::vector<uint64_t>& times) {
  RaiseTimes(times, &known[thread]);
}

void Clock::Count(const ThreadId& by, Pasts* counter) {
  BeginPhases();
  if (pasts.empty()) pasts.resize(num_threads());
  const Past mine{.block = by.block,
                  .barrier = barrier,
                  .first_block = first_block,
                  .num_blocks = num_blocks,
                  .times = Release(by.thread)};
  Pasts& known_pasts = pasts[by.thread];
  counter->insert(counter->end(), known_pasts.begin(), known_pasts.end());
  std::sort(counter->begin(), counter->end());
  counter->erase(std::unique(counter->begin(), counter->end()), counter->end());
  known_pasts = *counter;
  counter->push_back(std::make_shared<const Past>(mine));
}

bool Clock::KnowsOfBlock(int thread, const ThreadId& other, uint64_t time, bool is_one) const {
  if (pasts.empty()) return false;
  return std::any_of(pasts[thread].begin(), pasts[thread].end(), [&](const auto& past) {
    if (other.block == past->block && time < past->barrier) return true;
    const bool is_of_cluster =
        other.block >= past->first_block && other.block < past->first_block + past->num_blocks;
    return is_one && is_of_cluster && static_cast<size_t>(other.thread) < past->times.size() &&
           time < past->times[other.thread];
  });
}

std::string WatchedMemory::Access(const void* at, size_t bytes, AccessKind kind, const ThreadId& by,
                                  const Clock& clock) {
  const size_t offset = static_cast<const std::byte*>(at) - data_;
  if (offset + bytes > bytes_) {
    return "reaches " + std::to_string(offset + bytes - bytes_) + " bytes past the end of " + name_;
  }
  if (offset % bytes != 0) return "is not aligned to its size in " + name_;
  if (cells_.empty()) cells_.resize((bytes_ + kCellBytes - 1) / kCellBytes);
  for (size_t c = offset / kCellBytes; c * kCellBytes < offset + bytes; ++c) {
    const Wrong wrong = AccessCell(&cells_[c], kind, by, clock);
    if (wrong != Wrong::kNothing) {
      return Describe(wrong, cells_[c], kind, clock) + " at byte " +
             std::to_string(c * kCellBytes) + " of " + name_;
    }
  }
  return "";
}

bool WatchedMemory::WasWritten(const void* at, size_t bytes, uint64_t time) const {
  const size_t offset = static_cast<const std::byte*>(at) - data_;
  for (size_t c = offset / kCellBytes; c < cells_.size() && c * kCellBytes < offset + bytes; ++c) {
    if (cells_[c].write.time > time || cells_[c].atomic.time > time) return true;
  }
  return false;
}

void WatchedMemory::ForgetWrites(const void* at, size_t bytes) {
  const size_t offset = static_cast<const std::byte*>(at) - data_;
  const size_t end = std::min(cells_.size(), (offset + bytes) / kCellBytes);
  for (size_t c = (offset + kCellBytes - 1) / kCellBytes; c < end; ++c) {
    cells_[c].write = cells_[c].atomic = Visit();
  }
}

bool WatchedMemory::IsOrdered(const Visit& earlier, const ThreadId& by, const Clock& clock) const {
  if (earlier.time < (of_block_ ? clock.block : clock.launch)) return true;
  if (earlier.scope == Scope::kOne && earlier.by == by) return true;
  if (earlier.scope == Scope::kGrid) return false;
  const bool is_same_block = earlier.by.block == by.block;
  if (is_same_block && earlier.time < clock.barrier) return true;
  const bool is_one = earlier.scope == Scope::kOne;
  if (is_one && clock.IsInCluster(earlier.by.block) &&
      clock.Knows(by.thread, earlier.by.thread, earlier.time)) {
    return true;
  }
  if (clock.KnowsOfBlock(by.thread, earlier.by, earlier.time, is_one)) return true;
  if (!is_same_block) return false;
  return earlier.scope != Scope::kBlock && earlier.by.warp() == by.warp() &&
         earlier.time < clock.warp_sync[by.warp()];
}

// A later access replaces the earlier ones if every access that is ordered after it is also ordered
// after them. Otherwise the scope widens.
void WatchedMemory::Add(const ThreadId& by, const Clock& clock, Visit* visit) const {
  Scope scope = Scope::kOne;
  if (visit->time >= (of_block_ ? clock.block : clock.launch)) {
    if (visit->scope == Scope::kGrid || visit->by.block != by.block) {
      scope = Scope::kGrid;
    } else if (visit->time >= clock.barrier) {
      if (visit->scope == Scope::kBlock || visit->by.warp() != by.warp()) {
        scope = Scope::kBlock;
      } else if (visit->time >= clock.warp_sync[by.warp()] &&
                 (visit->scope == Scope::kWarp || !(visit->by == by))) {
        scope = Scope::kWarp;
      }
    }
  }
  *visit = {by, clock.now, scope};
}

void WatchedMemory::AddRead(const ThreadId& by, const Clock& clock, Cell* cell) const {
  if (!clock.has_phases()) return Add(by, clock, &cell->read);
  if (cell->reads == nullptr) cell->reads = std::make_unique<std::vector<Visit>>();
  std::erase_if(*cell->reads, [&](const Visit& read) { return IsOrdered(read, by, clock); });
  cell->reads->push_back({by, clock.now, Scope::kOne});
}

const WatchedMemory::Visit* WatchedMemory::FindUnorderedRead(const Cell& cell, const ThreadId& by,
                                                             const Clock& clock) const {
  if (!IsOrdered(cell.read, by, clock)) return &cell.read;
  if (cell.reads == nullptr) return nullptr;
  const auto found = std::find_if(cell.reads->begin(), cell.reads->end(),
                                  [&](const Visit& read) { return !IsOrdered(read, by, clock); });
  return found == cell.reads->end() ? nullptr : &*found;
}

WatchedMemory::Wrong WatchedMemory::AccessCell(Cell* cell, AccessKind kind, const ThreadId& by,
                                               const Clock& clock) const {
  if (kind == AccessKind::kEndBulkCopy) {
    cell->write = {by, clock.now, Scope::kOne};
    cell->copying = false;
    cell->by_bulk_copy = true;
    return Wrong::kNothing;
  }
  if (kind == AccessKind::kEndProduct) {
    AddRead(by, clock, cell);
    return Wrong::kNothing;
  }
  const bool reads = !Writes(kind);
  const bool is_atomic = kind == AccessKind::kAtomic;
  const bool is_new = of_block_ && cell->write.time < clock.block;
  if (is_new) cell->copying = false;
  if (cell->copying && kind != AccessKind::kEndCopy) return Wrong::kIsCopied;
  const bool is_product = kind == AccessKind::kBeginProduct;
  if (is_product && is_new) return Wrong::kNothing;
  if ((reads || is_atomic) && is_new) return Wrong::kIsUnwritten;
  if (!IsOrdered(cell->write, by, clock)) return Wrong::kWriteRaces;
  if (!is_atomic && !IsOrdered(cell->atomic, by, clock)) return Wrong::kAtomicRaces;
  const bool is_unfenced = of_block_ && !is_new && !cell->by_bulk_copy &&
                           clock.fences[cell->write.by.thread] <= cell->write.time;
  if (is_product) return is_unfenced ? Wrong::kHasNoFence : Wrong::kNothing;
  if (reads) {
    AddRead(by, clock, cell);
    return Wrong::kNothing;
  }
  if (const Visit* const read = FindUnorderedRead(*cell, by, clock)) {
    cell->read = *read;
    return Wrong::kReadRaces;
  }
  if (is_atomic) {
    Add(by, clock, &cell->atomic);
    return Wrong::kNothing;
  }
  const bool is_bulk = kind == AccessKind::kBeginBulkCopy;
  if (is_bulk && is_unfenced) return Wrong::kHasNoFence;
  cell->write = {by, clock.now, Scope::kOne};
  cell->copying = is_bulk || kind == AccessKind::kBeginCopy;
  cell->by_bulk_copy = is_bulk;
  return Wrong::kNothing;
}

std::string WatchedMemory::Describe(Wrong wrong, const Cell& cell, AccessKind kind,
                                    const Clock& clock) const {
  const std::string does = Writes(kind) ? "writes" : "reads";
  const auto name = [&](const ThreadId& by) {
    const bool is_copier = clock.IsInCluster(by.block) && by.thread >= clock.num_threads();
    const std::string of_block = " of block " + std::to_string(by.block);
    if (is_copier) return "a bulk copy" + of_block;
    return "thread " + std::to_string(by.thread % clock.block_threads) + of_block;
  };
  switch (wrong) {
    case Wrong::kNothing:
      break;
    case Wrong::kIsCopied:
      return does + " memory that is still being copied";
    case Wrong::kIsUnwritten:
      return does + " unwritten memory";
    case Wrong::kWriteRaces:
      return does + " memory that " + name(cell.write.by) + " writes: a race";
    case Wrong::kAtomicRaces:
      return does + " memory that " + name(cell.atomic.by) + " adds to: a race";
    case Wrong::kHasNoFence:
      return does + " what " + name(cell.write.by) + " wrote without a fence";
    case Wrong::kReadRaces:
      return does + " memory that " + name(cell.read.by) + " reads: a race";
  }
  return "";
}

}  // namespace tandem::simt
