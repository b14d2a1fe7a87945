// Processes that compute one model's passes together (tensor parallelism).
#ifndef TANDEM_MODEL_RANKS_RANK_GROUP_H_
#define TANDEM_MODEL_RANKS_RANK_GROUP_H_

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

// A rank's part [begin, end) of `count` items. Rank 0 has the largest part.
struct RankShare {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
};

// One rank's side of a group. Rank 0 leads: it sends messages, and the others act on them. Every
// rank makes the same calls in the same order.
//
// After a rank has ended, or has been silent for too long, every call fails at once, and `status()`
// says why. Data gathered after that is garbage. Thread-compatible; `Fail` and `status` are
// thread-safe.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  int rank() const { return rank_; }
  int world() const { return world_; }

  // Returns at least `bytes` of the group's memory `slot`, which is below kNumSlots. AllGather
  // works on such memory. Host memory keeps its contents and address when it grows.
  // RESOURCE_EXHAUSTED if it cannot be so large.
  virtual absl::StatusOr<Buffer> Memory(int slot, size_t bytes, Backend* backend) = 0;
  static constexpr int kNumSlots = 16;

  // Fills the group's memory with `fill`, which must write the same contents on every rank. With
  // shared memory only rank 0 calls it.
  virtual void FillReplicated(absl::FunctionRef<void()> fill) = 0;

  // Copies every rank's pieces of the group's memory to all ranks. `for_each_piece(rank, use)`
  // calls use(data, bytes) for each piece that `rank` has written. It must name the same places and
  // sizes on every rank.
  using UsePiece = absl::FunctionRef<void(void* data, size_t bytes)>;
  // REQUIRES: gathers_pieces().
  virtual void AllGather(absl::FunctionRef<void(int rank, UsePiece use)> for_each_piece) = 0;
  // Whether AllGather is available: not for memory of a device, whose pieces the host cannot
  // access.
  virtual bool gathers_pieces() const { return true; }
  // Copies every rank's columns of a matrix to all ranks. On a device the copy is enqueued, and can
  // be recorded (GraphCache).
  //   whole: elements of 32 bits, in the group's memory, or anywhere on a device
  //   columns(rank): adjacent ranges, in the order of ranks
  virtual void GatherColumns(MatrixView whole, absl::FunctionRef<RankShare(int rank)> columns);

  // Sends a message from rank 0 to all others.
  // REQUIRES: rank() == 0.
  virtual absl::Status Send(absl::Span<const std::byte> message) = 0;
  // Waits for the next message while rank 0 is alive. The message is valid until the next call of
  // AllGather or Receive.
  // REQUIRES: rank() != 0.
  virtual absl::StatusOr<absl::Span<const std::byte>> Receive() = 0;

  // Returns the words of every rank, in the order of ranks. `words`: at most kMaxWords bytes.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(const std::string& words) = 0;
  static constexpr size_t kMaxWords = 4096;

  // Returns OK, or the reason why the group has ended.
  virtual absl::Status status() const = 0;
  // Whether rank 0 has ended the group because its work is done.
  bool is_over() const { return absl::IsCancelled(status()); }
  // Ends the group for all ranks that can still be reached. Thread-safe.
  virtual void Fail(absl::Status why) = 0;

 protected:
  RankGroup(int rank, int world) : rank_(rank), world_(world) {}

 private:
  const int rank_;
  const int world_;
};

// INVALID_ARGUMENT naming `rank` unless it is from `least` to world - 1.
absl::Status CheckRank(int rank, int least, int world);

inline RankShare RankShareOf(int count, int rank, int world) {
  const auto at = [&](int64_t r) { return static_cast<int>((count * r + world - 1) / world); };
  return {at(rank), at(rank + 1)};
}

// Joins the devices of a group. The devices gather columns; all other calls go to `host`, which
// also reports the end of the group. Waits until all ranks call it.
//   devices: ColumnGatherer::NewGroup's words, the same on all ranks
// Each rank's memory is on its own device; when it grows, it moves and loses its contents.
// REQUIRES: backend->gatherer() is not null and is open; `host` outlives the backend, which
// outlives the returned group.
absl::StatusOr<std::unique_ptr<RankGroup>> JoinDeviceRanks(RankGroup* host, Backend* backend,
                                                           const std::string& devices);

}  // namespace tandem

#endif  // TANDEM_MODEL_RANKS_RANK_GROUP_H_
