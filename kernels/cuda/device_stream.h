// The definition of a Stream on a device, for device.cc, which creates streams, and simt.h, which
// launches on them.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_
#define TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/operations.h"

namespace tandem::cuda {

struct DeviceStream {
  int device;
  // Whether a kernel may begin before the previous one ends (compute capability 9.0 and later).
  bool overlaps_kernels;
  cudaStream_t stream;
  // The error that every call returns; kNoError while the device can be used. A device's
  // second stream has the error of the first.
  Error lost = kNoError;
  const DeviceStream* first = nullptr;  // of a second stream
};

inline const DeviceStream& Of(Stream stream) { return *static_cast<const DeviceStream*>(stream); }
inline Error LostOf(const DeviceStream& stream) {
  return stream.first == nullptr ? stream.lost : stream.first->lost;
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_
