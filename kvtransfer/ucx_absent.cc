// Stands in for ucx_link.cc in builds without UCX.
#include "absl/status/status.h"
#include "kvtransfer/page_link.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<PageLink>> PageLink::Open(const Address&, LinkEvents*) {
  return absl::UnimplementedError(
      "kv_transfer: this build has no UCX; install libucx-dev and build again");
}

}  // namespace tandem
