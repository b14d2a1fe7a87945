#ifndef TANDEM_KVTRANSFER_OPEN_TRANSFER_H_
#define TANDEM_KVTRANSFER_OPEN_TRANSFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kvtransfer/page_transfer.h"

namespace tandem {

// PageTransfer::Open for a worker that says that its wire version is this.
absl::StatusOr<std::unique_ptr<PageTransfer>> OpenTransfer(const PageTransfer::Options& options,
                                                           int64_t wire_version);

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_OPEN_TRANSFER_H_
