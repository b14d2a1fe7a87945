#include "kvtransfer/page_transfer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "net/address.h"
#include "kvtransfer/transfer_thread.h"
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
  ~RemoteReader() override { thread_->End(lease_); }

  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    if (run.empty() || page_bytes == 0) return 0;
    const Instant start = Instant::Now();
    std::deque<std::shared_ptr<PageRequest>> windows;
    const int num_taken = TakePages(pool, run, page_bytes, take, &windows);
    for (const auto& window : windows) thread_->Cancel(lease_, window);
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
  bool has_read_ = false;    // guarded by Count's lock
  bool has_failed_ = false;  // guarded by the same lock
};

class ThreadedTransfer final : public PageTransfer {
 public:
  ThreadedTransfer(std::string host, bool has_secret, std::shared_ptr<TransferThread> thread)
      : host_(std::move(host)), has_secret_(has_secret), thread_(std::move(thread)) {}
  ~ThreadedTransfer() override { thread_->Stop(); }

  const std::string& engine_id() const override { return thread_->engine_id(); }
  const std::string& host() const override { return host_; }
  int port() const override { return thread_->port(); }
  OfferedPages& offered() override { return thread_->offered(); }
  TransferCounts stats() const override { return thread_->stats(); }

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
    ASSIGN_OR_RETURN(*address, ParseAddress(remote.host, remote.port, Names::kRefused, "kv_transfer"));
    if (!has_secret_ && !IsLoopback(*address)) {
      return FieldError("kv_transfer", absl::StrCat("must be a loopback address without a secret, "
                                                    "got ",
                                                    ToString(*address)));
    }
    const bool is_named = !remote.engine_id.empty() && remote.engine_id.size() <= kMaxNameBytes &&
                          !remote.lease.empty() && remote.lease.size() <= kMaxNameBytes;
    if (is_named) return absl::OkStatus();
    return FieldError("kv_transfer",
                      absl::StrCat("engine and lease must have 1 to ", kMaxNameBytes, " bytes"));
  }

  const std::string host_;
  const bool has_secret_;
  const std::shared_ptr<TransferThread> thread_;
};

absl::Status Check(const PageTransfer::Options& options, const Address& address) {
  if (IsAnyAddress(address)) {
    return FieldError("kv_transfer",
                      absl::StrCat("must be an address at which other workers reach this one, got ",
                                   HostOf(address)));
  }
  if (options.secret.empty() && !IsLoopback(address)) {
    return FieldError("kv_transfer",
                      absl::StrCat("must have a secret unless it is a loopback address, got ",
                                   HostOf(address), " without one"));
  }
  if (options.pools.empty() || options.pools.size() > kMaxPools) {
    return FieldError("kv_transfer", absl::StrCat("must have 1 to ", kMaxPools, " pools, got ",
                                                  options.pools.size()));
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
  const Hello hello{.version = wire_version,
                    .engine_id = NewEngineId(),
                    .pools = options.pools,
                    .lease_ms = absl::ToInt64Milliseconds(options.offered.lease)};
  auto thread = std::make_shared<TransferThread>(
      TransferThread::Options{.address = address,
                              .self = {.hello = hello, .secret = options.secret},
                              .offered = options.offered,
                              .timeout = options.timeout});
  RETURN_IF_ERROR(thread->Start());
  return std::make_unique<ThreadedTransfer>(HostOf(address), !options.secret.empty(),
                                            std::move(thread));
}

absl::StatusOr<std::unique_ptr<PageTransfer>> PageTransfer::Open(const Options& options) {
  return OpenTransfer(options, kWireVersion);
}

}  // namespace tandem
