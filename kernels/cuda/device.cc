#include "kernels/cuda/device.h"

#include "kernels/cuda/device_stream.h"

namespace tandem::cuda {

namespace {

// Sets the stream's device as the current device of the thread, as calls on the stream require, and
// returns the stream. If that fails, the next call fails.
cudaStream_t Selected(Stream stream) {
  cudaSetDevice(Of(stream).device);
  return Of(stream).stream;
}

}  // namespace

int DriverVersion() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess ? driver : 0;
}

bool HasDriver() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) != cudaSuccess || driver != 0;
}

int NumDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
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
                 .shared_bytes = static_cast<int>(found.sharedMemPerBlockOptin),
                 .l2_bytes = static_cast<size_t>(found.l2CacheSize)};
  *stream =
      new DeviceStream{.device = device, .overlaps_kernels = found.major >= 9, .stream = made};
  return kNoError;
}

void CloseDevice(Stream stream) {
  cudaStreamDestroy(Selected(stream));
  delete static_cast<const DeviceStream*>(stream);
}

Error FreeMemoryOn(int device, size_t* bytes) {
  const cudaError_t error = cudaSetDevice(device);
  size_t all = 0;
  return error != cudaSuccess ? error : cudaMemGetInfo(bytes, &all);
}

Error AllocateOn(int device, size_t bytes, void** data) {
  const cudaError_t error = cudaSetDevice(device);
  return error != cudaSuccess ? error : cudaMalloc(data, bytes > 0 ? bytes : 1);
}

void FreeOn(int device, void* data) {
  cudaSetDevice(device);
  cudaFree(data);
}

bool IsOutOfMemory(Error error) { return error == cudaErrorMemoryAllocation; }

Error CopyIn(const void* host, void* device, size_t bytes, Stream stream) {
  return cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, Selected(stream));
}

Error CopyOut(const void* device, void* host, size_t bytes, Stream stream) {
  const cudaError_t error =
      cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, Selected(stream));
  return error != cudaSuccess ? error : cudaStreamSynchronize(Selected(stream));
}

Error CopyWithin(const void* from, void* to, size_t bytes, Stream stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, Selected(stream));
}

Error CopyRows(const StridedRows& from, const StridedRows& to, size_t row_bytes, int num_rows,
               Stream stream) {
  return cudaMemcpy2DAsync(to.data, to.stride_bytes, from.data, from.stride_bytes, row_bytes,
                           num_rows, cudaMemcpyDeviceToDevice, Selected(stream));
}

Error Wait(Stream stream) { return cudaStreamSynchronize(Selected(stream)); }

void* StreamOfToolkit(Stream stream) { return Selected(stream); }

Error BeginRecording(Stream stream) {
  return cudaStreamBeginCapture(Selected(stream), cudaStreamCaptureModeRelaxed);
}

Error EndRecording(Stream stream, Recording* recording) {
  *recording = nullptr;
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(Selected(stream), &graph);
  if (error == cudaSuccess) {
    cudaGraphExec_t made = nullptr;
    error = cudaGraphInstantiateWithFlags(&made, graph, 0);
    cudaGraphDestroy(graph);
    if (error == cudaSuccess) *recording = made;
  }
  if (error != cudaSuccess) cudaGetLastError();  // clears it, or the next launch would return it
  return error;
}

Error Replay(Recording recording, Stream stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), Selected(stream));
}

void Forget(Recording recording) {
  if (recording != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording));
}

}  // namespace tandem::cuda
