#include "kernels/cuda/device.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/device_stream.h"

namespace tandem::cuda {

namespace {

// Makes the stream's device current for the thread, as calls on the stream require, and returns
// call(the toolkit's stream).
template <typename Call>
Error On(Stream stream, Call call) {
  const DeviceStream& of = Of(stream);
  if (LostOf(of) != kNoError) return LostOf(of);
  const cudaError_t error = cudaSetDevice(of.device);
  return error != cudaSuccess ? error : call(of.stream);
}

}  // namespace

bool HasDriver() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) != cudaSuccess || driver != 0;
}

std::string ErrorText(Error error) {
  if (error == kGridTooLarge) return "a kernel has too many blocks";
  // Without a driver, the toolkit says that the driver is too old.
  if (error == cudaErrorInsufficientDriver && !HasDriver()) {
    return "this machine has no NVIDIA driver";
  }
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

Error OpenDevice(int device, DeviceProperties* properties, Stream* stream) {
  cudaError_t error = cudaSetDevice(device);
  cudaDeviceProp found;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&found, device);
  cudaStream_t made = nullptr;
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  *properties = {.name = found.name,
                 .major = found.major,
                 .minor = found.minor,
                 .num_sms = found.multiProcessorCount,
                 .memory_bytes = found.totalGlobalMem,
                 .shared_bytes = static_cast<int>(found.sharedMemPerBlockOptin)};
  *stream =
      new DeviceStream{.device = device, .overlaps_kernels = found.major >= 9, .stream = made};
  return kNoError;
}

Error OpenSecondStream(Stream stream, Stream* made) {
  cudaStream_t own = nullptr;
  const Error error = On(
      stream, [&](cudaStream_t) { return cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking); });
  if (error != kNoError) return error;
  *made = new DeviceStream{
      .device = Of(stream).device, .overlaps_kernels = false, .stream = own, .first = &Of(stream)};
  return kNoError;
}

Error CloseDevice(Stream stream) {
  const Error error = On(stream, cudaStreamDestroy);
  delete static_cast<const DeviceStream*>(stream);
  return error;
}

bool IsOutOfMemory(Error error) { return error == cudaErrorMemoryAllocation; }

bool IsSticky(Error error) {
  // Without a name in every toolkit that builds this: cudaErrorContained,
  // cudaErrorTensorMemoryLeak, cudaErrorMpsClientTerminated and cudaErrorExternalDevice.
  constexpr Error kUnnamed[] = {226, 721, 810, 911};
  // The toolkit says of most that the process must be terminated and relaunched. The others say
  // that a device that had been opened is gone.
  constexpr Error kNamed[] = {cudaErrorDevicesUnavailable,
                              cudaErrorNoDevice,
                              cudaErrorECCUncorrectable,
                              cudaErrorNvlinkUncorrectable,
                              cudaErrorIllegalAddress,
                              cudaErrorLaunchTimeout,
                              cudaErrorContextIsDestroyed,
                              cudaErrorAssert,
                              cudaErrorHardwareStackError,
                              cudaErrorIllegalInstruction,
                              cudaErrorMisalignedAddress,
                              cudaErrorInvalidAddressSpace,
                              cudaErrorInvalidPc,
                              cudaErrorLaunchFailure,
                              cudaErrorUnknown};
  const auto has = [error](const auto& errors) {
    return std::find(std::begin(errors), std::end(errors), error) != std::end(errors);
  };
  return has(kNamed) || has(kUnnamed);
}

void Lose(Stream stream, Error error) { static_cast<DeviceStream*>(stream)->lost = error; }

Error FreeMemory(Stream stream, size_t* bytes) {
  return On(stream, [&](cudaStream_t) {
    size_t all = 0;
    return cudaMemGetInfo(bytes, &all);
  });
}

Error Allocate(Stream stream, size_t bytes, void** data) {
  return On(stream, [&](cudaStream_t) { return cudaMalloc(data, bytes > 0 ? bytes : 1); });
}

Error Free(Stream stream, void* data) {
  return On(stream, [&](cudaStream_t) { return cudaFree(data); });
}

Error AllocatePinned(Stream stream, size_t bytes, void** data) {
  return On(stream,
            [&](cudaStream_t) { return cudaHostAlloc(data, bytes, cudaHostAllocPortable); });
}

Error FreePinned(Stream stream, void* data) {
  return On(stream, [&](cudaStream_t) { return cudaFreeHost(data); });
}

Error CopyIn(const void* host, void* device, size_t bytes, Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    return cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, on);
  });
}

Error CopyOut(const void* device, void* host, size_t bytes, Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    const cudaError_t error = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, on);
    return error != cudaSuccess ? error : cudaStreamSynchronize(on);
  });
}

Error CopyWithin(const void* from, void* to, size_t bytes, Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, on);
  });
}

Error CopyRows(const StridedRows& from, const StridedRows& to, size_t row_bytes, int num_rows,
               Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    return cudaMemcpy2DAsync(to.data, to.stride_bytes, from.data, from.stride_bytes, row_bytes,
                             num_rows, cudaMemcpyDeviceToDevice, on);
  });
}

Error Wait(Stream stream) { return On(stream, cudaStreamSynchronize); }

Error MakeEvent(Stream stream, Event* event) {
  return On(stream, [&](cudaStream_t) {
    cudaEvent_t made = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    *event = made;
    return error;
  });
}

Error EndEvent(Event event, Stream stream) {
  return On(stream,
            [&](cudaStream_t) { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); });
}

Error Mark(Event event, Stream stream) {
  return On(stream,
            [&](cudaStream_t on) { return cudaEventRecord(static_cast<cudaEvent_t>(event), on); });
}

Error Follow(Event event, Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    return cudaStreamWaitEvent(on, static_cast<cudaEvent_t>(event), 0);
  });
}

Error Wait(Event event, Stream stream) {
  return On(stream,
            [&](cudaStream_t) { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); });
}

void* StreamOfToolkit(Stream stream) {
  On(stream, [](cudaStream_t) { return cudaSuccess; });
  return Of(stream).stream;
}

Error BeginRecording(Stream stream) {
  return On(stream, [](cudaStream_t on) {
    return cudaStreamBeginCapture(on, cudaStreamCaptureModeRelaxed);
  });
}

Error EndRecording(Stream stream, Recording* recording) {
  *recording = nullptr;
  cudaGraph_t graph = nullptr;
  Error error = On(stream, [&](cudaStream_t on) { return cudaStreamEndCapture(on, &graph); });
  if (error == kNoError) {
    cudaGraphExec_t made = nullptr;
    error = cudaGraphInstantiateWithFlags(&made, graph, 0);
    cudaGraphDestroy(graph);
    if (error == kNoError) *recording = made;
  }
  if (error != kNoError) cudaGetLastError();  // clears it, or the next launch would return it
  return error;
}

Error Replay(Recording recording, Stream stream) {
  return On(stream, [&](cudaStream_t on) {
    return cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), on);
  });
}

void Forget(Recording recording) {
  if (recording != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording));
}

}  // namespace tandem::cuda
