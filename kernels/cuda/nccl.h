// NCCL as a shared library of the machine's, by which devices of several processes gather. It is
// loaded when a device is to join others, and the program runs without it.
#ifndef TANDEM_KERNELS_CUDA_NCCL_H_
#define TANDEM_KERNELS_CUDA_NCCL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem::cuda {

// One device's, in one group at most. Leaves the group when it ends, which may wait until all
// recordings with gatherings are forgotten.
class Nccl {
 public:
  // UNAVAILABLE if the library cannot be loaded, or is of a version that is not known. The
  // environment's TANDEM_NCCL names its file, or is "none".
  static absl::StatusOr<std::unique_ptr<Nccl>> Open();
  virtual ~Nccl() = default;

  // As of ColumnGatherer. Joins with the device that is the thread's.
  virtual absl::StatusOr<std::string> NewGroup() = 0;
  virtual absl::Status Join(const std::string& group, int rank, int world,
                            ColumnGatherer::TellGroup tell) = 0;
  virtual int rank() const = 0;
  // OK, or why the group has ended. Bytes gathered since are garbage.
  virtual absl::Status status() const = 0;

  // Enqueues on `stream`, which is the toolkit's: `all` gets every rank's part.
  //   all: [world][part_bytes], of which this rank's part is there
  virtual absl::Status Gather(std::byte* all, size_t part_bytes, void* stream) = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_NCCL_H_
