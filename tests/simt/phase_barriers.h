// The phase barriers (mbarriers) of a simulated block.
#ifndef TANDEM_TESTS_SIMT_PHASE_BARRIERS_H_
#define TANDEM_TESTS_SIMT_PHASE_BARRIERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::simt {

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

// A phase ends when all arrivals and all expected bytes have come.
struct PhaseBarrier {
  int index = 0;  // of all barriers of the cluster
  int initialised_by = 0;
  uint64_t initialised_at = 0;
  bool is_fenced = false;          // bulk copies see that it is initialised
  bool is_remote = false;          // threads of other blocks have arrived
  int arrivals = 0;                // of each phase
  int missing = 0;                 // arrivals of this phase
  int64_t bytes = 0;               // expected and not come
  uint64_t phase = 0;              // the number of phases that have ended
  std::vector<Copy> copies;        // of this phase, not made yet
  std::vector<uint64_t> arrived;   // everything that a thread knows after its wait
  std::vector<uint64_t> released;  // the same for the last phase that has ended

  bool has_ended(int parity) const { return static_cast<int>(phase & 1) != parity; }
  void EndPhase() {
    released = arrived;
    missing = arrivals;
    ++phase;
  }
  std::string Missing() const {
    return std::to_string(missing) + " arrivals and " + std::to_string(bytes) +
           " bytes are missing";
  }
};

class PhaseBarriers {
 public:
  // For block `rank` of a cluster of `num_blocks`.
  void Clear(int rank, int num_blocks) {
    barriers_.clear();
    rank_ = rank;
    num_blocks_ = num_blocks;
  }
  // Returns null if there is one already.
  PhaseBarrier* Add(const void* at) {
    const auto [entry, is_new] = barriers_.try_emplace(at);
    if (!is_new) return nullptr;
    entry->second.index = (static_cast<int>(barriers_.size()) - 1) * num_blocks_ + rank_;
    return &entry->second;
  }
  PhaseBarrier* Find(const void* at) {
    const auto found = barriers_.find(at);
    return found == barriers_.end() ? nullptr : &found->second;
  }
  void Fence(int thread) {
    for (auto& [at, barrier] : barriers_) barrier.is_fenced |= barrier.initialised_by == thread;
  }
  bool HasCopies() const {
    for (const auto& [at, barrier] : barriers_) {
      if (!barrier.copies.empty()) return true;
    }
    return false;
  }

 private:
  std::map<const void*, PhaseBarrier> barriers_;
  int rank_ = 0;
  int num_blocks_ = 1;
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_PHASE_BARRIERS_H_
