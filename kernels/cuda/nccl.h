// NCCL, by which devices of several processes gather. It is a shared library of the machine, loaded
// when a device joins a group. The program also runs without it.
#ifndef TANDEM_KERNELS_CUDA_NCCL_H_
#define TANDEM_KERNELS_CUDA_NCCL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem::cuda {

// One device's membership in at most one group. The destructor leaves the group. It may wait until
// all recordings with gatherings are forgotten.
class Nccl {
 public:
  // Returns UNAVAILABLE if the library cannot be loaded or its version is unknown. The environment
  // variable TANDEM_NCCL names its file, or is "none".
  static absl::StatusOr<std::unique_ptr<Nccl>> Open();
  virtual ~Nccl() = default;

  // Same as in ColumnGatherer. Join uses the current device of the thread.
  virtual absl::StatusOr<std::string> NewGroup() = 0;
  virtual absl::Status Join(const std::string& group, int rank, int world,
                            ColumnGatherer::TellGroup tell) = 0;
  virtual int rank() const = 0;
  // OK, or why the group has ended. Bytes gathered since then are garbage.
  virtual absl::Status status() const = 0;

  // Enqueues a gathering on `stream`, a stream of the toolkit: `all` gets every rank's part.
  //   all: [world][part_bytes]; the caller has written this rank's part
  virtual absl::Status Gather(std::byte* all, size_t part_bytes, void* stream) = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_NCCL_H_
