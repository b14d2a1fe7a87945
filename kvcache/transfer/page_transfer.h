// Transfer of pages of key-value caches between workers.
#ifndef TANDEM_KVCACHE_TRANSFER_PAGE_TRANSFER_H_
#define TANDEM_KVCACHE_TRANSFER_PAGE_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcache/store/page_id.h"
#include "kvcache/store/page_store.h"
#include "kvcache/transfer/offered_pages.h"
#include "tandem/kv_transfer.h"

namespace tandem {

// One worker's side of the transfer, as both sender and receiver. Thread-safe.
class PageTransfer {
 public:
  struct Options {
    std::string host;            // the address to listen on, at which other workers reach this one
    int port = 0;                // 0: any free port
    std::string secret;          // shared by all workers (ParseSecrets)
    std::string peers;           // as Networks::Parse reads them; empty: Networks::Around(host)
    std::string fabric = "tcp";  // what carries pages: "tcp", or "ucx" for RDMA, not on loopback
    std::string build{};         // identifies the program (ThisBuild of the engine)
    std::vector<PoolId> pools;   // pools whose pages may be sent: the target's, then the draft's
    OfferedPages::Options offered;
    // How long a peer may be silent while a reply or a page is due, connecting included.
    absl::Duration timeout = absl::Seconds(5);
  };
  // Returns INVALID_ARGUMENT for invalid options, and UNAVAILABLE if it cannot listen, and the
  // errors of BlockPath::Open. Messages name `kv_transfer` or another option, the value and the
  // rule.
  static absl::StatusOr<std::unique_ptr<PageTransfer>> Open(const Options& options);
  virtual ~PageTransfer() = default;

  virtual const std::string& engine_id() const = 0;  // random, different for each object
  virtual const std::string& host() const = 0;
  virtual int port() const = 0;  // the actual port
  virtual OfferedPages& offered() = 0;

  // A lease of another worker.
  struct Remote {
    std::string host;
    int port = 0;
    std::string engine_id;  // a peer with another id is refused
    std::string lease;
  };
  // Whether this worker may connect to the lender. INVALID_ARGUMENT that names
  // `kv_transfer_params.remote_host` also for a host that is not an address: names are not
  // resolved.
  virtual absl::Status CheckPeer(const Remote& remote) const = 0;
  // Returns a reader that fetches from a lease. Borrow does not block. It starts a connection and
  // sends heartbeats until the reader is destroyed, which releases the lease. PageReader::Read
  // blocks its thread while pages are in flight or still being computed by the peer. After a
  // failure or a timeout, pages that have not arrived are misses.
  // `request_id` appears in every log line about the transfer, on both sides.
  virtual std::unique_ptr<PageReader> Borrow(const Remote& remote,
                                             const std::string& request_id) = 0;

  // Does not set pages_hit, which only the caller knows.
  virtual TransferCounts stats() const = 0;
};

// Same as PageTransfer::Open, but with another wire version in the hello. For tests.
absl::StatusOr<std::unique_ptr<PageTransfer>> OpenTransfer(const PageTransfer::Options& options,
                                                           int64_t wire_version);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_PAGE_TRANSFER_H_
