// Pages of key-value caches travel between workers.
#ifndef TANDEM_KVTRANSFER_PAGE_TRANSFER_H_
#define TANDEM_KVTRANSFER_PAGE_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvstore/page_id.h"
#include "kvstore/page_store.h"
#include "kvtransfer/offered_pages.h"
#include "tandem/kv_transfer.h"

namespace tandem {

// One worker's side of the transfer, as both sender and receiver. Thread-safe.
class PageTransfer {
 public:
  struct Options {
    std::string host;           // the address that it listens on and that others reach it at
    int port = 0;               // 0: any that is free
    std::string secret;         // that all workers share; empty: only peers on a loopback address
    std::vector<PoolId> pools;  // whose pages may travel: the target's, then the draft's if any
    OfferedPages::Options offered;
    // How long a peer may be silent while it owes something, connecting included.
    absl::Duration timeout = absl::Seconds(5);
  };
  // INVALID_ARGUMENT for options that are not possible, UNAVAILABLE if it cannot listen,
  // UNIMPLEMENTED in a build without UCX. Messages name `kv_transfer`, the value and the rule.
  static absl::StatusOr<std::unique_ptr<PageTransfer>> Open(const Options& options);
  virtual ~PageTransfer() = default;

  virtual const std::string& engine_id() const = 0;  // random, new with each process
  virtual const std::string& host() const = 0;
  virtual int port() const = 0;  // the actual one
  virtual OfferedPages& offered() = 0;

  // A lease of another worker.
  struct Remote {
    std::string host;
    int port = 0;
    std::string engine_id;  // refused if another engine answers there
    std::string lease;
  };
  // Fetches from a lease. This never blocks: it connects, and sends heartbeats until the reader is
  // destroyed, which releases the lease. PageReader::Read blocks its thread while pages are on
  // their way, those included that the peer is still computing, until a failure or a timeout; then
  // pages that have not come are misses.
  // `request_id` appears in every log line about it, on both sides.
  virtual std::unique_ptr<PageReader> Borrow(const Remote& remote,
                                             const std::string& request_id) = 0;

  // Without pages_hit, which the caller knows.
  virtual TransferCounts stats() const = 0;
};

// PageTransfer::Open for a worker that says that its wire version is this.
absl::StatusOr<std::unique_ptr<PageTransfer>> OpenTransfer(const PageTransfer::Options& options,
                                                           int64_t wire_version);

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_PAGE_TRANSFER_H_
