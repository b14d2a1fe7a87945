// Memory that checks every access by a kernel: whether it is inside, whether it reads written
// memory, and whether it is ordered with other threads' accesses.
#ifndef TANDEM_TESTS_SIMT_WATCHED_MEMORY_H_
#define TANDEM_TESTS_SIMT_WATCHED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::simt {

inline constexpr int kWarpThreads = 32;

// Identifies a thread of a launch. Threads are counted over the blocks of a cluster.
struct ThreadId {
  int64_t block = -1;
  int thread = -1;

  int warp() const { return thread / kWarpThreads; }
  bool operator==(const ThreadId&) const = default;
};

// A thread's order at its addition to a counter of the device.
struct Past {
  int64_t block = 0;
  uint64_t barrier = 0;         // the block's last one
  int64_t first_block = 0;      // of its cluster
  int num_blocks = 1;           // of its cluster
  std::vector<uint64_t> times;  // [threads]: the accesses before are known
};
using Pasts = std::vector<std::shared_ptr<const Past>>;

// The time of a launch. It advances with every barrier, so that accesses before a barrier are
// earlier.
struct Clock {
  uint64_t now = 1;
  uint64_t launch = 0;      // when the launch began
  uint64_t block = 0;       // when the blocks of the cluster began
  uint64_t barrier = 0;     // the last barrier of the block whose thread runs
  int64_t first_block = 0;  // of the cluster
  int num_blocks = 1;       // of the cluster
  int block_threads = 0;
  std::vector<uint64_t> warp_sync;  // each warp's last SyncWarp
  std::vector<uint64_t> fences;     // each thread's last fence between its writes and bulk copies
  // known[t][u]: all accesses of u before this time are earlier than what thread t does next. After
  // the threads, u are the bulk copies of each phase barrier. Empty in a block without these.
  std::vector<std::vector<uint64_t>> known;
  // [threads]: earlier additions to counters, as a thread knows them. Empty without counters.
  std::vector<Pasts> pasts;

  void BeginLaunch() { launch = ++now; }
  // The blocks of a cluster begin.
  void BeginBlocks(int64_t first, int count, int threads);
  int num_threads() const { return num_blocks * block_threads; }
  bool IsInCluster(int64_t of) const { return of >= first_block && of < first_block + num_blocks; }
  // A barrier of a block, whose threads begin at `first`.
  void Barrier(int first);
  void ClusterBarrier();
  void SyncWarp(int warp);
  void Fence(int thread) { fences[thread] = ++now; }
  // The block has phase barriers from now on.
  void BeginPhases();
  bool has_phases() const { return !known.empty(); }
  bool Knows(int thread, int other, uint64_t time) const;
  // Returns what other threads know once they have learned of `thread`'s accesses so far.
  std::vector<uint64_t> Release(int thread);
  void Learn(int thread, const std::vector<uint64_t>& times);
  // An addition to a counter: the thread learns of all earlier ones, and later ones learn of it.
  void Count(const ThreadId& by, Pasts* counter);
  bool KnowsOfBlock(int thread, const ThreadId& other, uint64_t time, bool is_one) const;

 private:
  // Threads of a range learn of each other and of all that they know.
  void Share(int first, int count);
  void SharePasts(int first, int count);
};
// into[i] = the larger of into[i] and times[i].
void RaiseTimes(const std::vector<uint64_t>& times, std::vector<uint64_t>* into);

// kAtomic reads and writes. Two atomic accesses are not a race. A bulk copy is begun by a thread
// and ended by the copies of a phase barrier. A product (warpgroups.h) reads, from its begin to its
// end, the bytes that bulk copies or fenced threads wrote before; its sums of unwritten rows are
// not used.
enum class AccessKind {
  kRead,
  kBeginProduct,
  kEndProduct,
  kWrite,
  kAtomic,
  kBeginCopy,
  kEndCopy,
  kBeginBulkCopy,
  kEndBulkCopy
};
inline bool Writes(AccessKind kind) {
  return kind != AccessKind::kRead && kind != AccessKind::kBeginProduct &&
         kind != AccessKind::kEndProduct;
}

class WatchedMemory {
 public:
  // `of_block` is for shared memory, which is new in every block.
  WatchedMemory(std::string name, std::byte* data, size_t bytes, bool of_block)
      : name_(std::move(name)), data_(data), bytes_(bytes), of_block_(of_block) {}

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return bytes_; }
  bool Contains(const void* at) const {
    return at >= data_ && static_cast<const std::byte*>(at) < data_ + bytes_;
  }
  // Returns whether a kernel wrote there after `time`.
  // REQUIRES: Contains(at).
  bool WasWritten(const void* at, size_t bytes, uint64_t time) const;
  // Records that the host wrote there, in order with all kernels.
  // REQUIRES: Contains(at).
  void ForgetWrites(const void* at, size_t bytes);
  // Records an access and returns its fault, or an empty string.
  // REQUIRES: Contains(at).
  std::string Access(const void* at, size_t bytes, AccessKind kind, const ThreadId& by,
                     const Clock& clock);

 private:
  // The threads that have accessed a cell: one thread, several of a warp, of a block, or of several
  // blocks.
  enum class Scope : uint8_t { kOne, kWarp, kBlock, kGrid };
  struct Visit {
    ThreadId by;
    uint64_t time = 0;
    Scope scope = Scope::kOne;
  };
  struct Cell {
    Visit write;
    Visit read;
    Visit atomic;
    bool copying = false;
    bool by_bulk_copy = false;  // `write` is the end of one
    // All reads that no later one is ordered after. Used in a block with phase barriers, whose
    // order is not one of scopes.
    std::unique_ptr<std::vector<Visit>> reads;
  };
  bool IsOrdered(const Visit& earlier, const ThreadId& by, const Clock& clock) const;
  void Add(const ThreadId& by, const Clock& clock, Visit* visit) const;
  void AddRead(const ThreadId& by, const Clock& clock, Cell* cell) const;
  // Returns a read that is not ordered before an access, or null.
  const Visit* FindUnorderedRead(const Cell& cell, const ThreadId& by, const Clock& clock) const;
  enum class Wrong {
    kNothing,
    kIsCopied,
    kIsUnwritten,
    kWriteRaces,
    kReadRaces,
    kAtomicRaces,
    kHasNoFence
  };
  Wrong AccessCell(Cell* cell, AccessKind kind, const ThreadId& by, const Clock& clock) const;
  std::string Describe(Wrong wrong, const Cell& cell, AccessKind kind, const Clock& clock) const;

  // Two threads that write different halves of a word count as a race.
  static constexpr size_t kCellBytes = 4;
  std::string name_;
  std::byte* data_;
  size_t bytes_;
  bool of_block_;
  std::vector<Cell> cells_;  // empty before the first access
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_WATCHED_MEMORY_H_
