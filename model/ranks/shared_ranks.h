// Ranks on one machine: processes with shared memory.
#ifndef TANDEM_MODEL_RANKS_SHARED_RANKS_H_
#define TANDEM_MODEL_RANKS_SHARED_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/ranks/rank_group.h"

namespace tandem {

// A group's shared memory. It is anonymous, so it disappears when the last process ends. The system
// allocates its pages when they are first written.
class SharedMemory {
 public:
  // RESOURCE_EXHAUSTED if the system refuses the memory.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(int world);
  // Maps an inherited file descriptor, which is closed with the memory. INVALID_ARGUMENT if it is
  // not a group's memory, or has another layout.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(int descriptor);
  ~SharedMemory();

  int world() const;
  int descriptor() const { return descriptor_; }  // inherited by child processes
  std::byte* data() const { return data_; }

 private:
  SharedMemory(int descriptor, std::byte* data) : descriptor_(descriptor), data_(data) {}
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Map(int descriptor);

  int descriptor_;
  std::byte* data_;
};

struct SharedRankOptions {
  // A rank that sends no heartbeat for this long is given up. Heartbeats come from a separate
  // thread, so this does not limit the duration of a pass.
  absl::Duration silence = absl::Seconds(10);
  // Called when this rank gives up another, on the thread that waits for it.
  std::function<void(const absl::Status& why)> on_silence{};
};
// Joins the group as rank `rank`. Each rank must join once.
std::unique_ptr<RankGroup> JoinSharedRanks(std::shared_ptr<SharedMemory> memory, int rank,
                                           const SharedRankOptions& options = {});

// The file descriptor of the group's memory in a rank's process.
inline constexpr int kRankDescriptor = 3;

// The processes of ranks from 1 on. They end with this process, whatever ends it. Thread-safe.
class RankProcesses {
 public:
  // Starts `program` for each rank, with `arguments` and the rank as the last argument. The
  // processes' standard output is redirected to this process's standard error. If one of them ends
  // before this object does, `on_end` is called on a separate thread, with an error that says which
  // and why. NOT_FOUND naming `program` if it does not exist.
  static absl::StatusOr<std::unique_ptr<RankProcesses>> Start(
      const std::string& program, const std::vector<std::string>& arguments,
      const SharedMemory& memory, std::function<void(const absl::Status&)> on_end);
  // Waits for the processes to end, and kills those that do not. The caller must tell them to end
  // before.
  virtual ~RankProcesses() = default;
};

// Call in the process of a rank. Ends the process when its parent has ended, even if that happened
// before this call. From then on, the process ignores signals that are sent to all processes of a
// terminal or a service: rank 0 handles them, and ends this process after it has answered all
// requests.
void EndWithParent();

// Returns the path of this program, if it is `tandem`, else "tandem", which is looked up in PATH.
std::string OwnProgram();

}  // namespace tandem

#endif  // TANDEM_MODEL_RANKS_SHARED_RANKS_H_
