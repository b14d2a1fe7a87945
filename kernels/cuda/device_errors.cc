#include "kernels/cuda/device_errors.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device.h"

namespace tandem::cuda {

absl::Status DeviceErrors::StatusOf(Error error, absl::string_view doing) {
  if (!lost_.ok()) return lost_;
  const std::string what = absl::StrCat(device_, ": ", doing, ": ", ErrorText(error));
  if (!IsSticky(error)) return absl::InternalError(what);
  Lose(stream_, error);
  lost_ = absl::DataLossError(
      absl::StrCat(what, "; this process cannot use the device any more: restart it"));
  return lost_;
}

}  // namespace tandem::cuda
