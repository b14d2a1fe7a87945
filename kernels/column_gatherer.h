// The seam between devices that compute one model's passes together.
#ifndef TANDEM_KERNELS_COLUMN_GATHERER_H_
#define TANDEM_KERNELS_COLUMN_GATHERER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/matrix.h"

namespace tandem {

// A device of a group, each of whose ranks is a process with a device of its own. The devices bring
// each other columns of matrices without their hosts. Lives as long as its backend, which has left
// the group when it ends. Thread-compatible.
class ColumnGatherer {
 public:
  virtual ~ColumnGatherer() = default;

  // Finds what devices meet by. UNAVAILABLE if this machine has nothing, or nothing that fits.
  // REQUIRES: before Join.
  virtual absl::Status Open() = 0;
  // Words for Join that one rank makes for all.   REQUIRES: Open() was OK.
  virtual absl::StatusOr<std::string> NewGroup() = 0;

  // Is told how this device fares, again and again and on another thread, and returns how the group
  // fares: after an error the device leaves.
  using TellGroup = std::function<absl::Status(const absl::Status& of_device)>;
  // Waits until all ranks have joined. From here on work that is recorded (GraphCache) is recorded,
  // repeated and forgotten on all ranks alike, as long as they make the same calls; where that
  // fails, Synchronize says so.   REQUIRES: Open() was OK, and this device has joined no group.
  virtual absl::Status Join(const std::string& group, int rank, int world, TellGroup tell) = 0;

  // Enqueues: columns [bounds[r], bounds[r + 1]) of rank r's `whole` come to every rank's. Elements
  // are moved as they are.
  //   whole: of 32 bits, of one shape on all ranks; bounds: [world + 1], ascending, the same on all
  virtual void GatherColumns(MatrixView whole, absl::Span<const int> bounds) = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_COLUMN_GATHERER_H_
