// A device's memory and stream, as plain functions. Each makes the device that it concerns the
// calling thread's. tests/simt/cuda_runtime_api.h is the runtime of devices that are the host.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_H_
#define TANDEM_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <string>

#include "kernels/cuda/operations.h"

namespace tandem::cuda {

std::string ErrorText(Error error);

// Whether this machine has a driver for devices of this kind, which may be one that does not work.
bool HasDriver();

struct DeviceProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_sms = 0;
  size_t memory_bytes = 0;
  int shared_bytes = 0;  // that a block may have
};

// Makes a stream on `device`. Fails without a driver or such a device.
Error OpenDevice(int device, DeviceProperties* properties, Stream* stream);
void CloseDevice(Stream stream);

Error FreeMemoryOn(int device, size_t* bytes);
Error AllocateOn(int device, size_t bytes, void** data);
void FreeOn(int device, void* data);
bool IsOutOfMemory(Error error);

// In the order of the stream. The host may change `host` when CopyIn returns; CopyOut waits.
Error CopyIn(const void* host, void* device, size_t bytes, Stream stream);
Error CopyOut(const void* device, void* host, size_t bytes, Stream stream);
Error CopyWithin(const void* from, void* to, size_t bytes, Stream stream);
// Rows within the device, so many bytes of each.
struct StridedRows {
  void* data = nullptr;
  size_t stride_bytes = 0;
};
Error CopyRows(const StridedRows& from, const StridedRows& to, size_t row_bytes, int num_rows,
               Stream stream);
Error Wait(Stream stream);

// The toolkit's own stream, for its libraries.
void* StreamOfToolkit(Stream stream);

// What was enqueued, to be enqueued again at the cost of one call.
using Recording = void*;
// Between these the stream takes down what is enqueued instead of doing it: launches and copies
// within the device.
Error BeginRecording(Stream stream);
Error EndRecording(Stream stream, Recording* recording);  // null if it fails
Error Replay(Recording recording, Stream stream);
void Forget(Recording recording);  // may be null

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_DEVICE_H_
