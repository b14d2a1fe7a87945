// Ranks on one machine: processes whose group's memory is shared.
#ifndef TANDEM_RANKS_SHARED_RANKS_H_
#define TANDEM_RANKS_SHARED_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

// Where a rank's process finds the group's memory.
inline constexpr int kRankDescriptor = 3;

// Processes of ranks 1 and up, which end with this one, whatever ends it. Thread-safe.
class RankProcesses {
 public:
  // Starts `program` with the words of `arguments` and a rank as the last one, once for each rank.
  // Their standard output is our standard error. `on_end` is called, on a thread of its own, when
  // one of them ends before this object does: with which and why. NOT_FOUND, naming `program`.
  static absl::StatusOr<std::unique_ptr<RankProcesses>> Start(
      const std::string& program, const std::vector<std::string>& arguments,
      const SharedMemory& memory, std::function<void(const absl::Status&)> on_end);
  // Waits for them to end, which they are to have been told, and kills those that do not.
  virtual ~RankProcesses() = default;
};

// In the process of a rank: ends it when its parent has ended, which may be before this is called.
// From here on signals that people send to all processes of a terminal or a service are left to
// rank 0, which ends this one when it has answered everybody.
void EndWithParent();

// The program itself, if it is tandem's, else the first `tandem` in the path.
std::string OwnProgram();

}  // namespace tandem

#endif  // TANDEM_RANKS_SHARED_RANKS_H_
