// Ranks on one machine, whose group's memory is shared.
#ifndef TANDEM_RANKS_SHARED_RANKS_H_
#define TANDEM_RANKS_SHARED_RANKS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ranks/rank_group.h"

namespace tandem {

// Memory of a group, which has no name: nothing is left of it when the last process has ended.
// Pages are taken as they are written to.
class SharedMemory {
 public:
  // RESOURCE_EXHAUSTED if the system refuses.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(int world);
  // Maps a file descriptor that was inherited, which is closed with the memory. INVALID_ARGUMENT if
  // it is something else, or has another layout.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(int descriptor);
  ~SharedMemory();

  int world() const;
  int descriptor() const { return descriptor_; }  // what a child process inherits
  std::byte* data() const { return data_; }

 private:
  SharedMemory(int descriptor, std::byte* data) : descriptor_(descriptor), data_(data) {}
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Map(int descriptor);

  int descriptor_;
  std::byte* data_;
};

struct SharedRankOptions {
  // A rank whose process does not say for so long that it lives is given up. It says so from a
  // thread of its own, so this is not how long a pass may take.
  absl::Duration silence = absl::Seconds(10);
  // Called, on the thread that waits for it, when this rank gives another up.
  std::function<void(const absl::Status& why)> on_silence{};
};
// Rank `rank` of the group. One of each.
std::unique_ptr<RankGroup> JoinSharedRanks(std::shared_ptr<SharedMemory> memory, int rank,
                                           const SharedRankOptions& options = {});

}  // namespace tandem

#endif  // TANDEM_RANKS_SHARED_RANKS_H_
