// CUDA's runtime on simulated devices (machine.h).
#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_stream.h"
#include "tests/simt/devices.h"
#include "tests/simt/launches.h"
#include "tests/simt/machine.h"
#include "tests/simt/runtime_calls.h"
#include "tests/simt/toolkit_stream.h"

using Work = std::vector<std::function<std::string()>>;

struct CUstream_st : tandem::simt::ToolkitStream {
  int device;
  // Enqueued work that is done as late as the runtime may do it.
  Work late;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // whose end it marks
};
struct CUgraph_st {
  int device;
  Work work;
};
struct CUgraphExec_st : CUgraph_st {};

namespace tandem::simt {

Devices& Devices::Get() {
  static Devices devices;
  return devices;
}

namespace {

constexpr size_t kMemoryBytes = size_t{1} << 30;
// Faults are errors with numbers from here on.
constexpr int kFirstFault = 1000;

thread_local int current_device = 0;

std::vector<std::string>& Faults() {
  static std::vector<std::string> faults;
  return faults;
}

cudaError_t Remember(const std::string& fault) {
  if (fault.empty()) return cudaSuccess;
  Faults().push_back(fault);
  return static_cast<cudaError_t>(kFirstFault + static_cast<int>(Faults().size()) - 1);
}

// Stores launches while a stream records; else null.
std::unique_ptr<CUgraph_st>& Taken() {
  static std::unique_ptr<CUgraph_st> taken;
  return taken;
}

// Does the late work of a stream.
cudaError_t Flush(CUstream_st* stream) {
  std::string first;
  for (const auto& work : std::exchange(stream->late, {})) {
    const std::string fault = work();
    if (first.empty()) first = fault;
  }
  return Remember(first);
}

std::set<CUstream_st*>& Streams() {
  static std::set<CUstream_st*> streams;
  return streams;
}

cudaError_t FlushAll() {
  cudaError_t first = cudaSuccess;
  for (CUstream_st* stream : Streams()) {
    const cudaError_t error = Flush(stream);
    if (first == cudaSuccess) first = error;
  }
  return first;
}

// Pinned memory, with its size.
std::map<const std::byte*, size_t>& Pinned() {
  static std::map<const std::byte*, size_t> pinned;
  return pinned;
}
bool IsPinned(const void* data) {
  const auto* const at = static_cast<const std::byte*>(data);
  auto next = Pinned().upper_bound(at);
  if (next == Pinned().begin()) return false;
  --next;
  return at < next->first + next->second;
}

bool Exists(int device) {
  return 0 <= device && device < static_cast<int>(Devices::Get().all.size());
}

std::map<void*, int>& Owners() {
  static std::map<void*, int> owners;
  return owners;
}

cudaError_t OnlyOn(int device, const char* what) {
  if (device == current_device) return cudaSuccess;
  return Remember(
      absl::StrCat(what, " of device ", device, " while the thread's is device ", current_device));
}

// Counts a call. Returns the fault that a test has planted.
cudaError_t Called(const char* name) {
  RuntimeCalls& calls = RuntimeCalls::Get();
  ++calls.counts[name];
  return static_cast<cudaError_t>(calls.fault.load());
}

// Does the work, or records it.
cudaError_t Do(std::function<std::string()> work) {
  if (Taken() == nullptr) return Remember(work());
  Taken()->work.push_back(std::move(work));
  return cudaSuccess;
}

// For calls that need the host, which does not run when a recording is replayed.
cudaError_t OnlyWithoutRecording(const char* what) {
  return Taken() == nullptr ? cudaSuccess : Remember(absl::StrCat(what, " while recording"));
}

}  // namespace

cuda::Error Launch(std::function<std::string()> work) { return LaunchOn(nullptr, std::move(work)); }

cuda::Error LaunchOn(cuda::Stream stream, std::function<std::string()> work) {
  if (stream != nullptr && cuda::LostOf(cuda::Of(stream)) != cuda::kNoError) {
    return cuda::LostOf(cuda::Of(stream));
  }
  if (const cudaError_t fault = Called("launch"); fault != cudaSuccess) return fault;
  if (stream != nullptr && cuda::Of(stream).first != nullptr) {
    cuda::Of(stream).stream->late.push_back(std::move(work));
    return cuda::kNoError;
  }
  const cudaError_t error = stream == nullptr ? FlushAll() : Flush(cuda::Of(stream).stream);
  return error != cudaSuccess ? error : Do(std::move(work));
}

GraphCounts& Graphs() {
  static GraphCounts counts;
  return counts;
}

TensorCore TensorCoreOf(cuda::Stream stream) {
  return stream == nullptr ? kHopper : cuda::Of(stream).stream->core;
}

bool HasWarpgroups(cuda::Stream stream) {
  if (stream == nullptr) return true;
  const Device& device = Devices::Get().all[cuda::Of(stream).device];
  return device.major == 9 && device.minor == 0;
}

HostCopies& CopiedBytes() {
  static HostCopies copies;
  return copies;
}

std::function<bool(size_t bytes)>& RefusesMemory() {
  static std::function<bool(size_t)> refuses;
  return refuses;
}

}  // namespace tandem::simt

using tandem::simt::Called;
using tandem::simt::current_device;
using tandem::simt::Devices;
using tandem::simt::Do;
using tandem::simt::Exists;
using tandem::simt::Flush;
using tandem::simt::FlushAll;
using tandem::simt::IsPinned;
using tandem::simt::Machine;
using tandem::simt::OnlyOn;
using tandem::simt::OnlyWithoutRecording;
using tandem::simt::Owners;
using tandem::simt::Pinned;
using tandem::simt::Remember;
using tandem::simt::Streams;
using tandem::simt::Taken;

// ---- Devices ----

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Devices::Get().has_driver ? 13000 : 0;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      break;
  }
  if (error < tandem::simt::kFirstFault) return "an error of the runtime";
  return tandem::simt::Faults()[error - tandem::simt::kFirstFault].c_str();
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  if (!Devices::Get().has_driver) return cudaErrorInsufficientDriver;
  *count = static_cast<int>(Devices::Get().all.size());
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!Devices::Get().has_driver) return cudaErrorInsufficientDriver;
  if (Devices::Get().all.empty()) return cudaErrorNoDevice;
  if (!Exists(device)) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!Exists(device)) return cudaErrorInvalidDevice;
  *properties = {.name = "this host",
                 .totalGlobalMem = tandem::simt::kMemoryBytes,
                 .sharedMemPerBlockOptin = 99 * 1024,
                 .major = Devices::Get().all[device].major,
                 .minor = Devices::Get().all[device].minor,
                 .multiProcessorCount = 1,
                 .l2CacheSize = 128 << 10};
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  if (const cudaError_t fault = Called("cudaMemGetInfo"); fault != cudaSuccess) return fault;
  *total = tandem::simt::kMemoryBytes;
  *available = Devices::Get().all[current_device].free_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t fault = Called("cudaMalloc"); fault != cudaSuccess) return fault;
  const cudaError_t recording = OnlyWithoutRecording("an allocation");
  if (recording != cudaSuccess) return recording;
  const auto& refuses = tandem::simt::RefusesMemory();
  *data = bytes > tandem::simt::kMemoryBytes || (refuses && refuses(bytes))
              ? nullptr
              : Machine::Get().Allocate(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  Owners()[*data] = current_device;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  FlushAll();
  const auto owner = Owners().extract(data);
  Machine::Get().Free(data);
  if (const cudaError_t fault = Called("cudaFree"); fault != cudaSuccess) return fault;
  return owner.empty() ? cudaSuccess : OnlyOn(owner.mapped(), "memory");
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t fault = Called("cudaHostAlloc"); fault != cudaSuccess) return fault;
  const cudaError_t recording = OnlyWithoutRecording("an allocation");
  if (recording != cudaSuccess) return recording;
  *data = nullptr;
  if (tandem::simt::RuntimeCalls::Get().refuses_pinned) return cudaErrorMemoryAllocation;
  *data = Machine::Get().Allocate(bytes);
  Owners()[*data] = current_device;
  Pinned()[static_cast<const std::byte*>(*data)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  FlushAll();
  Pinned().erase(static_cast<const std::byte*>(data));
  return cudaFree(data);
}

// ---- Streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  if (const cudaError_t fault = Called("cudaStreamCreateWithFlags"); fault != cudaSuccess)
    return fault;
  *stream = new CUstream_st{
      {.enqueue = tandem::simt::Launch,
       .core = Devices::Get().all[current_device].major >= 9 ? tandem::simt::kHopper
                                                             : tandem::simt::kAmpere},
      current_device,
      {}};
  Streams().insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t fault = Called("cudaStreamDestroy");
  const cudaError_t error = OnlyOn(stream->device, "the end of a stream");
  Flush(stream);
  Streams().erase(stream);
  delete stream;
  return fault != cudaSuccess ? fault : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t fault = Called("cudaStreamSynchronize"); fault != cudaSuccess) return fault;
  cudaError_t error = OnlyOn(stream->device, "waiting");
  if (error == cudaSuccess) error = OnlyWithoutRecording("waiting");
  if (error == cudaSuccess) error = Flush(stream);
  if (error == cudaSuccess) Machine::Get().EndKernels();
  return error;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t fault = Called("cudaMemcpyAsync"); fault != cudaSuccess) return fault;
  cudaError_t error = OnlyOn(stream->device, "a copy");
  if (error != cudaSuccess) return error;
  const auto copy = [from, to, bytes] {
    Machine::Get().CopyBetweenKernels(from, to, bytes);
    return std::string();
  };
  const bool is_in = kind == cudaMemcpyHostToDevice;
  if (is_in && IsPinned(from) && Taken() == nullptr) {
    tandem::simt::CopiedBytes().in += bytes;
    stream->late.push_back(copy);
    return cudaSuccess;
  }
  error = Flush(stream);
  if (error != cudaSuccess) return error;
  if (kind == cudaMemcpyDeviceToDevice) return Do(copy);
  error = OnlyWithoutRecording(is_in ? "a copy to the device" : "a copy from the device");
  if (error != cudaSuccess) return error;
  (is_in ? tandem::simt::CopiedBytes().in : tandem::simt::CopiedBytes().out) += bytes;
  if (is_in) {
    copy();
  } else {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_stride, const void* from, size_t from_stride,
                              size_t row_bytes, size_t num_rows, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (const cudaError_t fault = Called("cudaMemcpy2DAsync"); fault != cudaSuccess) return fault;
  const cudaError_t error = OnlyOn(stream->device, "a copy");
  if (error != cudaSuccess) return error;
  if (kind != cudaMemcpyDeviceToDevice) return Remember("a copy of rows that leaves the device");
  Flush(stream);
  if (row_bytes > to_stride || row_bytes > from_stride)
    return Remember("a copy of rows that overlap");
  return Do([=] {
    for (size_t r = 0; r < num_rows; ++r) {
      Machine::Get().CopyBetweenKernels(static_cast<const std::byte*>(from) + r * from_stride,
                                        static_cast<std::byte*>(to) + r * to_stride, row_bytes);
    }
    return std::string();
  });
}

// ---- Events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  if (const cudaError_t fault = Called("cudaEventCreateWithFlags"); fault != cudaSuccess)
    return fault;
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t fault = Called("cudaEventDestroy");
  delete event;
  return fault;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t fault = Called("cudaEventRecord"); fault != cudaSuccess) return fault;
  event->stream = stream;
  const cudaError_t error = OnlyOn(stream->device, "an event");
  return error != cudaSuccess ? error : OnlyWithoutRecording("an event");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t fault = Called("cudaEventSynchronize"); fault != cudaSuccess) return fault;
  return event->stream == nullptr ? cudaSuccess : Flush(event->stream);
}

// The stream's work may be late too, but all other work is done when it is enqueued.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const cudaError_t fault = Called("cudaStreamWaitEvent"); fault != cudaSuccess) return fault;
  const cudaError_t error = OnlyOn(stream->device, "waiting for an event");
  if (error != cudaSuccess || event->stream == nullptr) return error;
  return Flush(event->stream);
}

// ---- Graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (const cudaError_t fault = Called("cudaStreamBeginCapture"); fault != cudaSuccess)
    return fault;
  cudaError_t error = OnlyOn(stream->device, "recording");
  if (error == cudaSuccess) error = OnlyWithoutRecording("recording");
  if (error == cudaSuccess) Taken() = std::make_unique<CUgraph_st>(stream->device);
  return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (const cudaError_t fault = Called("cudaStreamEndCapture"); fault != cudaSuccess) return fault;
  const cudaError_t error = OnlyOn(stream->device, "the end of recording");
  *graph = error == cudaSuccess ? Taken().release() : nullptr;
  if (error != cudaSuccess || *graph != nullptr) return error;
  return Remember("the end of a recording that was not started");
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long /*flags*/) {  // NOLINT
  if (const cudaError_t fault = Called("cudaGraphInstantiateWithFlags"); fault != cudaSuccess)
    return fault;
  *made = new CUgraphExec_st{*graph};
  ++tandem::simt::Graphs().recorded;
  return OnlyOn(graph->device, "a graph");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (const cudaError_t fault = Called("cudaGraphLaunch"); fault != cudaSuccess) return fault;
  cudaError_t error = OnlyOn(stream->device, "replaying");
  if (error == cudaSuccess) error = Flush(stream);
  if (error == cudaSuccess) error = OnlyOn(graph->device, "a graph");
  ++tandem::simt::Graphs().replayed;
  for (size_t i = 0; error == cudaSuccess && i < graph->work.size(); ++i) {
    error = Remember(graph->work[i]());
  }
  return error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
