#ifndef TANDEM_KERNELS_CUDA_DEVICE_ERRORS_H_
#define TANDEM_KERNELS_CUDA_DEVICE_ERRORS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/operations.h"

namespace tandem::cuda {

// Turns the errors of one device's calls into statuses, and remembers the first error after which
// the device cannot be used (IsSticky). From then on every call on the stream fails without
// reaching the device. Thread-compatible.
class DeviceErrors {
 public:
  // `device` is its name in messages.
  DeviceErrors(std::string device, Stream stream) : device_(std::move(device)), stream_(stream) {}

  // Returns the status of a call that failed while `doing` something: INTERNAL, or lost().
  absl::Status StatusOf(Error error, absl::string_view doing);
  // OK, or DATA_LOSS that names the first call that lost the device.
  const absl::Status& lost() const { return lost_; }

 private:
  const std::string device_;
  const Stream stream_;
  absl::Status lost_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_DEVICE_ERRORS_H_
