// Launches on the simulated device.
#ifndef TANDEM_TESTS_SIMT_LAUNCHES_H_
#define TANDEM_TESTS_SIMT_LAUNCHES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/cuda/operations.h"
#include "tests/simt/tensor_core_arithmetic.h"

namespace tandem::simt {

// Runs `work`, which returns its first fault or an empty string, or stores it if the device is
// recording (device.h). A fault is returned as an error number, whose ErrorText is the fault's
// text.
cuda::Error Launch(std::function<std::string()> work);
// The same for a kernel on `stream`; null: work that belongs to no stream. A device's second
// stream (device.h) runs it late.
cuda::Error LaunchOn(cuda::Stream stream, std::function<std::string()> work);

// Returns the tensor cores of a stream's device: Ampere's below compute capability 9, else
// Hopper's. Without a stream, Hopper's.
TensorCore TensorCoreOf(cuda::Stream stream);
// Returns whether it has the instructions of kernels/cuda/warpgroup.h: compute capability 9.0.
bool HasWarpgroups(cuda::Stream stream);

// What streams of this process have recorded and replayed so far.
struct GraphCounts {
  int recorded = 0;
  int replayed = 0;
};
GraphCounts& Graphs();

// Set by tests: returns whether an allocation of this many bytes must fail. Empty by default.
std::function<bool(size_t bytes)>& RefusesMemory();

// The bytes that have been copied between the host and all devices.
struct HostCopies {
  int64_t in = 0;  // to the devices
  int64_t out = 0;
};
HostCopies& CopiedBytes();

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_LAUNCHES_H_
