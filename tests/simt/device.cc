// The twin of kernels/cuda/device.cc: a device that is the host (machine.h).
#include "kernels/cuda/device.h"

#include <cstring>
#include <vector>

#include "tests/simt/launch_faults.h"
#include "tests/simt/machine.h"

namespace tandem {
namespace {

constexpr cuda::Error kOutOfMemory = 1;
constexpr cuda::Error kNoSuchDevice = 2;
constexpr cuda::Error kFirstFault = 3;

std::vector<std::string>& Faults() {
  static std::vector<std::string> faults;
  return faults;
}

}  // namespace

cuda::Error simt::RememberFault(const std::string& fault) {
  if (fault.empty()) return cuda::kNoError;
  Faults().push_back(fault);
  return kFirstFault + static_cast<int>(Faults().size()) - 1;
}

namespace cuda {

std::string ErrorText(Error error) {
  if (error == kOutOfMemory) return "out of memory";
  if (error == kNoSuchDevice) return "invalid device ordinal";
  return Faults()[error - kFirstFault];
}

Error OpenDevice(int device, DeviceProperties* properties, Stream* stream) {
  if (device != 0) return kNoSuchDevice;
  *properties = {.name = "this host",
                 .major = 8,
                 .minor = 0,
                 .num_processors = 1,
                 .memory_bytes = size_t{1} << 30,
                 .shared_bytes = 99 * 1024};
  *stream = nullptr;
  return kNoError;
}

void CloseDevice(Stream) {}

Error AllocateOn(int, size_t bytes, void** data) {
  *data = bytes > size_t{1} << 30 ? nullptr : simt::Machine::Get().Allocate(bytes);
  return *data == nullptr ? kOutOfMemory : kNoError;
}

void FreeOn(int, void* data) { simt::Machine::Get().Free(data); }

bool IsOutOfMemory(Error error) { return error == kOutOfMemory; }

Error CopyIn(const void* host, void* device, size_t bytes, Stream) {
  std::memcpy(device, host, bytes);
  return kNoError;
}

Error CopyOut(const void* device, void* host, size_t bytes, Stream) {
  std::memcpy(host, device, bytes);
  return kNoError;
}

Error CopyWithin(const void* from, void* to, size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return kNoError;
}

Error Wait(Stream) { return kNoError; }

// Kernels run when they are launched.
bool CanRecord() { return false; }
Error BeginRecording(Stream) { return kNoSuchDevice; }
Error EndRecording(Stream, Recording*) { return kNoSuchDevice; }
Error Replay(Recording, Stream) { return kNoSuchDevice; }
void Forget(Recording) {}

}  // namespace cuda
}  // namespace tandem
