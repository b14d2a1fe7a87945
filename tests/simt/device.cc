// The twin of kernels/cuda/device.cc: a device that is the host (machine.h).
#include "kernels/cuda/device.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simt/launches.h"
#include "tests/simt/machine.h"
#include "tests/simt/toolkit_stream.h"

namespace tandem {
namespace {

constexpr cuda::Error kOutOfMemory = 1;
constexpr cuda::Error kNoSuchDevice = 2;
constexpr cuda::Error kFirstFault = 3;

std::vector<std::string>& Faults() {
  static std::vector<std::string> faults;
  return faults;
}

cuda::Error Remember(const std::string& fault) {
  if (fault.empty()) return cuda::kNoError;
  Faults().push_back(fault);
  return kFirstFault + static_cast<int>(Faults().size()) - 1;
}

using Work = std::vector<std::function<std::string()>>;

// Where launches are taken down while the stream records; else null.
std::unique_ptr<Work>& Taken() {
  static std::unique_ptr<Work> taken;
  return taken;
}

// What a stream cannot take down: the host would have to be there again.
cuda::Error OnlyWithoutRecording(const char* what) {
  return Taken() == nullptr ? cuda::kNoError : Remember(std::string(what) + " while recording");
}

}  // namespace

cuda::Error simt::Launch(std::function<std::string()> work) {
  if (Taken() == nullptr) return Remember(work());
  Taken()->push_back(std::move(work));
  return cuda::kNoError;
}

simt::TensorCore simt::TensorCoreOf(cuda::Stream stream) {
  return stream == nullptr ? kHopper : *static_cast<const TensorCore*>(stream);
}

std::function<bool(size_t bytes)>& simt::RefusesMemory() {
  static std::function<bool(size_t)> refuses;
  return refuses;
}

namespace cuda {

bool HasDriver() { return true; }

std::string ErrorText(Error error) {
  if (error == kOutOfMemory) return "out of memory";
  if (error == kNoSuchDevice) return "invalid device ordinal";
  return Faults()[error - kFirstFault];
}

Error OpenDevice(int device, DeviceProperties* properties, Stream* stream) {
  static simt::TensorCore tensor_cores[] = {simt::kHopper, simt::kAmpere};
  if (device != 0 && device != 1) return kNoSuchDevice;
  *properties = {.name = "this host",
                 .major = device == 0 ? 9 : 8,
                 .minor = 0,
                 .num_processors = 1,
                 .memory_bytes = size_t{1} << 30,
                 .shared_bytes = 99 * 1024};
  *stream = &tensor_cores[device];
  return kNoError;
}

void CloseDevice(Stream) {}

Error FreeMemoryOn(int, size_t* bytes) {
  *bytes = size_t{1} << 30;
  return kNoError;
}

Error AllocateOn(int, size_t bytes, void** data) {
  const Error recording = OnlyWithoutRecording("an allocation");
  if (recording != kNoError) return recording;
  const auto& refuses = simt::RefusesMemory();
  *data = bytes > size_t{1} << 30 || (refuses && refuses(bytes))
              ? nullptr
              : simt::Machine::Get().Allocate(bytes);
  return *data == nullptr ? kOutOfMemory : kNoError;
}

void FreeOn(int, void* data) { simt::Machine::Get().Free(data); }

bool IsOutOfMemory(Error error) { return error == kOutOfMemory; }

Error CopyIn(const void* host, void* device, size_t bytes, Stream) {
  const Error recording = OnlyWithoutRecording("a copy to the device");
  if (recording == kNoError) simt::Machine::Get().CopyBetweenKernels(host, device, bytes);
  return recording;
}

Error CopyOut(const void* device, void* host, size_t bytes, Stream) {
  const Error recording = OnlyWithoutRecording("a copy from the device");
  if (recording == kNoError) std::memcpy(host, device, bytes);
  return recording;
}

Error CopyWithin(const void* from, void* to, size_t bytes, Stream) {
  return simt::Launch([from, to, bytes] {
    simt::Machine::Get().CopyBetweenKernels(from, to, bytes);
    return std::string();
  });
}

void* StreamOfToolkit(Stream stream) {
  static std::map<Stream, simt::ToolkitStream> streams;
  simt::ToolkitStream& of_toolkit = streams[stream];
  of_toolkit = {.enqueue = simt::Launch, .core = simt::TensorCoreOf(stream)};
  return &of_toolkit;
}

Error Wait(Stream) { return OnlyWithoutRecording("waiting"); }

Error BeginRecording(Stream) {
  const Error error = OnlyWithoutRecording("recording");
  if (error == kNoError) Taken() = std::make_unique<Work>();
  return error;
}

Error EndRecording(Stream, Recording* recording) {
  *recording = Taken().release();
  return *recording == nullptr ? Remember("the end of no recording") : kNoError;
}

Error Replay(Recording recording, Stream) {
  for (const auto& work : *static_cast<const Work*>(recording)) {
    const Error error = Remember(work());
    if (error != kNoError) return error;
  }
  return kNoError;
}

void Forget(Recording recording) { delete static_cast<Work*>(recording); }

}  // namespace cuda
}  // namespace tandem
