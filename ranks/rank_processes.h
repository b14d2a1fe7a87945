// The other ranks of a group as child processes.
#ifndef TANDEM_RANKS_RANK_PROCESSES_H_
#define TANDEM_RANKS_RANK_PROCESSES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ranks/shared_ranks.h"

namespace tandem {

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

#endif  // TANDEM_RANKS_RANK_PROCESSES_H_
