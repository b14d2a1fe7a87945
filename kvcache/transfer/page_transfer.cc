#include "kvcache/transfer/page_transfer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/net/address.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "kvcache/transfer/transfer_thread.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Each Read asks for two windows of this size: while one is taken, the other keeps the link busy.
constexpr size_t kWindowBytes = size_t{4} << 20;
constexpr size_t kNumWindows = 2;
constexpr size_t kMaxRequestIdBytes = 256;  // for logs

class RemoteReader final : public PageReader {
 public:
  RemoteReader(std::shared_ptr<TransferThread> thread, std::shared_ptr<BorrowedLease> lease)
      : thread_(std::move(thread)), lease_(std::move(lease)) {}
  ~RemoteReader() override { thread_->End(lease_, has_taken_); }

  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    if (run.empty() || page_bytes == 0) return 0;
    const Instant start = Instant::Now();
    std::deque<std::shared_ptr<PageRequest>> windows;
    const int num_taken = TakePages(pool, run, page_bytes, take, &windows);
    for (const auto& window : windows) thread_->Cancel(lease_, window);
    has_taken_ |= num_taken == static_cast<int>(run.size());
    thread_->Count([&](TransferCounts& stats) {
      stats.pages_received += num_taken;
      stats.bytes_received += num_taken * static_cast<int64_t>(page_bytes);
      stats.receiving_seconds += absl::ToDoubleSeconds(Instant::Now() - start);
    });
    return num_taken;
  }

 private:
  int TakePages(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
                absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take,
                std::deque<std::shared_ptr<PageRequest>>* windows) {
    const size_t window_pages = std::clamp(kWindowBytes / page_bytes, size_t{1}, size_t{kMaxKeys});
    size_t num_asked = 0;
    int num_taken = 0;
    Note(PageRequest::Outcome::kThere);
    for (;;) {
      while (windows->size() < kNumWindows && num_asked < run.size()) {
        const auto pages = run.subspan(num_asked, window_pages);
        windows->push_back(thread_->AskFor(lease_, pool, pages, page_bytes));
        num_asked += pages.size();
      }
      if (windows->empty()) return num_taken;
      PageRequest& window = *windows->front();
      for (size_t i = 0; i < window.num_pages(); ++i) {
        absl::Span<const std::byte> bytes;
        const PageRequest::Outcome outcome = window.Await(i, &bytes);
        Note(outcome);
        if (outcome != PageRequest::Outcome::kThere) return num_taken;
        if (!take(num_taken, bytes)) return num_taken + 1;
        ++num_taken;
      }
      windows->pop_front();
    }
  }

  void Note(PageRequest::Outcome outcome) {
    thread_->Count([&](TransferCounts& stats) {
      // Each lease counts as one transfer, and as at most one failure.
      if (!std::exchange(has_read_, true)) ++stats.transfers;
      if (outcome == PageRequest::Outcome::kDamaged) ++stats.pages_damaged;
      if (outcome != PageRequest::Outcome::kFailed) return;
      if (!std::exchange(has_failed_, true)) ++stats.transfers_failed;
    });
    if (outcome != PageRequest::Outcome::kDamaged) return;
    Log(LogLevel::kWarning,
        absl::StrCat("kv transfer: request_id=", lease_->request_id, " peer=", lease_->remote.host,
                     ":", lease_->remote.port, " sent a damaged page"));
  }

  const std::shared_ptr<TransferThread> thread_;
  const std::shared_ptr<BorrowedLease> lease_;
  bool has_taken_ = false;   // a whole run of pages
  bool has_read_ = false;    // guarded by Count's lock
  bool has_failed_ = false;  // guarded by the same lock
};

class ThreadedTransfer final : public PageTransfer {
 public:
  ThreadedTransfer(std::string host, Networks peers, std::shared_ptr<TransferThread> thread)
      : host_(std::move(host)), peers_(std::move(peers)), thread_(std::move(thread)) {}
  ~ThreadedTransfer() override { thread_->Stop(); }

  const std::string& engine_id() const override { return thread_->engine_id(); }
  const std::string& host() const override { return host_; }
  int port() const override { return thread_->port(); }
  OfferedPages& offered() override { return thread_->offered(); }
  TransferCounts stats() const override { return thread_->stats(); }

  absl::Status CheckPeer(const Remote& remote) const override {
    constexpr absl::string_view kField = "kv_transfer_params.remote_host";
    const auto address = ParseAddress(remote.host, remote.port, Names::kRefused, kField);
    if (address.ok() && peers_.Allow(*address)) return absl::OkStatus();
    const std::string peer = address.ok()
                                 ? ToString(*address)
                                 : absl::StrCat(EscapeControls(remote.host), ":", remote.port);
    return FieldError(kField,
                      absl::StrCat(peer, " is not a peer of this worker (--kv-transfer-peers)"));
  }

  std::unique_ptr<PageReader> Borrow(const Remote& remote, const std::string& request_id) override {
    auto lease = std::make_shared<BorrowedLease>();
    lease->remote = remote;
    lease->request_id = request_id.substr(0, kMaxRequestIdBytes);
    const absl::Status status = Check(remote, &lease->address);
    if (status.ok()) {
      thread_->Begin(lease);
    } else {
      Log(LogLevel::kWarning,
          absl::StrCat("kv transfer: request_id=", request_id, " failed: ", status.message()));
    }
    return std::make_unique<RemoteReader>(thread_, std::move(lease));
  }

 private:
  absl::Status Check(const Remote& remote, Address* address) const {
    ASSIGN_OR_RETURN(*address,
                     ParseAddress(remote.host, remote.port, Names::kRefused, "kv_transfer"));
    const bool is_named = !remote.engine_id.empty() && remote.engine_id.size() <= kMaxNameBytes &&
                          !remote.lease.empty() && remote.lease.size() <= kMaxNameBytes;
    if (is_named) return absl::OkStatus();
    return FieldError("kv_transfer",
                      absl::StrCat("engine and lease must have 1 to ", kMaxNameBytes, " bytes"));
  }

  const std::string host_;
  const Networks peers_;
  const std::shared_ptr<TransferThread> thread_;
};

absl::Status Check(const PageTransfer::Options& options, const Address& address) {
  if (address.address().is_unspecified()) {
    return FieldError("kv_transfer",
                      absl::StrCat("must be an address at which other workers reach this one, got ",
                                   address.address().to_string()));
  }
  if (options.pools.empty() || options.pools.size() > kMaxPools) {
    return FieldError("kv_transfer", absl::StrCat("must have 1 to ", kMaxPools, " pools, got ",
                                                  options.pools.size()));
  }
  if (options.fabric != "tcp" && options.fabric != "ucx") {
    return FieldError("kv_transfer_fabric",
                      absl::StrCat("must be tcp or ucx, got ", options.fabric));
  }
  if (options.fabric != "tcp" && address.address().is_loopback()) {
    return FieldError("kv_transfer_fabric",
                      absl::StrCat("must be tcp at a loopback address, got ", options.fabric,
                                   " at ", address.address().to_string()));
  }
  if (options.timeout <= absl::ZeroDuration() || options.offered.lease < absl::Milliseconds(1)) {
    return FieldError("kv_transfer", "the timeout must be positive, and leases at least 1 ms");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageTransfer>> OpenTransfer(const PageTransfer::Options& options,
                                                           int64_t wire_version) {
  ASSIGN_OR_RETURN(const Address address,
                   ParseAddress(options.host, options.port, Names::kResolved, "kv_transfer"));
  RETURN_IF_ERROR(Check(options, address));
  Networks peers = Networks::Around(address);
  if (!options.peers.empty()) {
    ASSIGN_OR_RETURN(peers, Networks::Parse(options.peers, "kv_transfer_peers"));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> secrets,
                   ParseSecrets(options.secret, "kv_transfer_secret"));
  auto thread = std::make_shared<TransferThread>(TransferThread::Options{
      .address = address,
      .secrets = std::move(secrets),
      .hello = {.version = wire_version,
                .engine_id = NewRandomName(),
                .build = options.build,
                .pools = options.pools,
                .lease_ms = absl::ToInt64Milliseconds(options.offered.lease)},
      .offered = options.offered,
      .timeout = options.timeout,
      .fabric = options.fabric});
  RETURN_IF_ERROR(thread->Start());
  return std::make_unique<ThreadedTransfer>(address.address().to_string(), std::move(peers),
                                            std::move(thread));
}

absl::StatusOr<std::unique_ptr<PageTransfer>> PageTransfer::Open(const Options& options) {
  return OpenTransfer(options, kWireVersion);
}

}  // namespace tandem
