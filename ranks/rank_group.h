// Processes that compute one model's passes together (tensor parallelism).
#ifndef TANDEM_RANKS_RANK_GROUP_H_
#define TANDEM_RANKS_RANK_GROUP_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tandem {

// [begin, end) of what rank `rank` of `world` has of `count`. Rank 0 has the most.
struct RankShare {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
};

// One rank's side of a group. Rank 0 leads: it sends messages, which the others follow. Every rank
// then makes the same calls in the same order.
//
// After a rank has ended, or says nothing for too long, every call fails at once, and `status()`
// says why. What was gathered since is garbage. Thread-compatible, but for `Fail` and `status`.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  int rank() const { return rank_; }
  int world() const { return world_; }

  // The group's memory `slot`, below kNumSlots, of at least `bytes`: what AllGather gathers lies in
  // such memory. Where that is the host's it keeps its contents and its place when it grows.
  // RESOURCE_EXHAUSTED if it cannot be so large.
  virtual absl::StatusOr<Buffer> Memory(int slot, size_t bytes, Backend* backend) = 0;
  static constexpr int kNumSlots = 16;

  // Fills the group's memory with what every rank would fill it with.
  virtual void FillAlike(absl::FunctionRef<void()> fill) = 0;

  // Brings every rank's pieces of the group's memory to all ranks. `for_each_piece(rank, use)`
  // calls use(data, bytes) for each of the pieces that `rank` has written; on every rank it names
  // the same places of the same sizes.
  using UsePiece = absl::FunctionRef<void(void* data, size_t bytes)>;
  // REQUIRES: gathers_pieces().
  virtual void AllGather(absl::FunctionRef<void(int rank, UsePiece use)> for_each_piece) = 0;
  // Whether the host can name pieces: not those of a device's memory.
  virtual bool gathers_pieces() const { return true; }
  // Brings every rank's columns of a matrix to all ranks. On a device it is enqueued, and may be
  // recorded (GraphCache).
  //   whole: of 32 bits, in the group's memory, or on a device anywhere; columns(rank): of the
  //   ranks next to each other, in their order
  virtual void GatherColumns(MatrixView whole, absl::FunctionRef<RankShare(int rank)> columns);

  // A message of rank 0 to all others.
  // REQUIRES: rank() == 0.
  virtual absl::Status Send(absl::Span<const std::byte> message) = 0;
  // Waits for the next message, as long as rank 0 lives.
  // REQUIRES: rank() != 0. The message is valid until the next call of AllGather or Receive.
  virtual absl::StatusOr<absl::Span<const std::byte>> Receive() = 0;

  // What every rank says, in the order of ranks.   words: at most kMaxWords bytes
  virtual absl::StatusOr<std::vector<std::string>> Exchange(const std::string& words) = 0;
  static constexpr size_t kMaxWords = 4096;

  // OK, or why the group has ended.
  virtual absl::Status status() const = 0;
  // Whether rank 0 has ended the group because its work is done.
  virtual bool is_over() const = 0;
  // Ends the group for all ranks that can still hear of it. Thread-safe.
  virtual void Fail(absl::Status why) = 0;

 protected:
  RankGroup(int rank, int world) : rank_(rank), world_(world) {}

 private:
  const int rank_;
  const int world_;
};

// INVALID_ARGUMENT, naming `rank`, unless it is from `least` to world - 1.
absl::Status CheckRank(int rank, int least, int world);

inline RankShare RankShareOf(int count, int rank, int world) {
  const auto at = [&](int64_t r) { return static_cast<int>((count * r + world - 1) / world); };
  return {at(rank), at(rank + 1)};
}

// Joins the devices of a group: what is gathered is so by the devices, and everything else is
// `host`'s, which also says when the group has ended. Waits for all ranks to call it.
//   devices: ColumnGatherer::NewGroup's words, the same on all ranks
// Each rank's memory is its device's own, and what grows is at another place, without its contents.
// REQUIRES: backend->gatherer() is there and open; `host` outlives the backend, the backend what is
// returned.
absl::StatusOr<std::unique_ptr<RankGroup>> JoinDeviceRanks(RankGroup* host, Backend* backend,
                                                           const std::string& devices);

}  // namespace tandem

#endif  // TANDEM_RANKS_RANK_GROUP_H_
