// What a device's speed is measured with, beside the operations of backend.h.
#ifndef TANDEM_KERNELS_DEVICE_METER_H_
#define TANDEM_KERNELS_DEVICE_METER_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/matrix.h"

namespace tandem {

// Of a backend whose device is not the host: Backend::meter.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;

  // Reads memory and does little else: how fast that is bounds decoding. The exclusive or of all
  // `sums` is that of all 32-bit words read.
  //   bytes: a multiple of 16; sums: [NumReadSums(bytes)], the backend's
  virtual void Read(const void* data, size_t bytes, uint32_t* sums) = 0;
  virtual size_t NumReadSums(size_t bytes) const = 0;

  // Seconds that the device takes for what `enqueue` enqueues, with no host in between: records it
  // once, then replays the recording `replays` times in a row. `enqueue` must not upload, download
  // or synchronise, and must have run before, so that scratch memory is there. The first failure.
  virtual absl::StatusOr<double> SecondsWithoutHost(absl::FunctionRef<void()> enqueue,
                                                    int replays) = 0;

  // out = x * transpose(weight), of bf16 in plain rows, by the library of the device's maker, in
  // whatever order is fastest: a product's ceiling. UNIMPLEMENTED without that library. The first
  // call waits and allocates.
  //   x: [rows, inputs]; weight: [outputs, inputs]; out: [rows, outputs], none with gaps
  virtual absl::Status ReferenceProduct(ConstMatrixView /*x*/, ConstMatrixView /*weight*/,
                                        MatrixView /*out*/) {
    return absl::UnimplementedError("this device has no library of products");
  }
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_METER_H_
