// Stands in for ucx_path.cc in builds without UCX.
#include "base/net/block_path.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<BlockPath>> BlockPath::Open(const std::string&, BlockPathEvents*) {
  return absl::UnimplementedError(
      "kv_transfer_fabric: must be tcp: this build has no UCX; build with -DTANDEM_UCX=ON");
}

}  // namespace tandem
