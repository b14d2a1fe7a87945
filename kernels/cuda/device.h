// Functions for a device's memory and stream. Each makes its device the current device of the
// calling thread, and returns the error if that fails. tests/simt/cuda_runtime_api.h is the runtime
// of devices simulated on the host.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_H_
#define TANDEM_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <string>

#include "kernels/cuda/operations.h"

namespace tandem::cuda {

std::string ErrorText(Error error);

// Whether this machine has a CUDA driver, whether or not the driver works.
bool HasDriver();
// The version of CUDA that the driver supports, such as 12080; 0 without a driver.
int DriverVersion();

// The number of devices; 0 without a working driver.
int NumDevices();

struct DeviceProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_sms = 0;
  size_t memory_bytes = 0;
  int shared_bytes = 0;  // maximum shared memory of a block
  size_t l2_bytes = 0;
};

// Creates a stream on `device`. Fails without a driver or without that device.
Error OpenDevice(int device, DeviceProperties* properties, Stream* stream);
// Creates a second stream on the device of `stream`, which must outlive it.
Error OpenSecondStream(Stream stream, Stream* made);
Error CloseDevice(Stream stream);

bool IsOutOfMemory(Error error);
// Whether the process cannot use the device after this error: its context is corrupted, or the
// device is gone.
bool IsSticky(Error error);
// From now on every function below returns `error` without calling the runtime.
void Lose(Stream stream, Error error);

// Memory of the stream's device.
Error FreeMemory(Stream stream, size_t* bytes);
Error Allocate(Stream stream, size_t bytes, void** data);
Error Free(Stream stream, void* data);
// Memory of the host that the device reads and writes, and that it copies without the host.
Error AllocatePinned(Stream stream, size_t bytes, void** data);
Error FreePinned(Stream stream, void* data);

// Copy in stream order. The caller may change `host` once CopyIn returns. CopyOut blocks.
Error CopyIn(const void* host, void* device, size_t bytes, Stream stream);
Error CopyOut(const void* device, void* host, size_t bytes, Stream stream);
Error CopyWithin(const void* from, void* to, size_t bytes, Stream stream);
// Copies `row_bytes` of each row within the device.
struct StridedRows {
  void* data = nullptr;
  size_t stride_bytes = 0;
};
Error CopyRows(const StridedRows& from, const StridedRows& to, size_t row_bytes, int num_rows,
               Stream stream);
Error Wait(Stream stream);

// A place in a stream.
using Event = void*;
Error MakeEvent(Stream stream, Event* event);  // of the stream's device
Error EndEvent(Event event, Stream stream);
// Sets the event to the end of the work that is enqueued on `stream`.
Error Mark(Event event, Stream stream);
// Work that is enqueued on `stream` from now on waits for the event.
Error Follow(Event event, Stream stream);
Error Wait(Event event, Stream stream);  // the host waits; `stream` names the device

// Returns the toolkit's own stream, for its libraries. If its device cannot be made current, the
// library's next call fails.
void* StreamOfToolkit(Stream stream);

// Recorded work, which can be enqueued again at the cost of one call.
using Recording = void*;
// Between these calls the stream records the work that is enqueued (launches, and copies within the
// device) instead of doing it.
Error BeginRecording(Stream stream);
Error EndRecording(Stream stream, Recording* recording);  // null if it fails
Error Replay(Recording recording, Stream stream);
void Forget(Recording recording);  // may be null

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_DEVICE_H_
