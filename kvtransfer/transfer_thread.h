#ifndef TANDEM_KVTRANSFER_TRANSFER_THREAD_H_
#define TANDEM_KVTRANSFER_TRANSFER_THREAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "kvtransfer/handshake.h"
#include "net/address.h"
#include "kvtransfer/offered_pages.h"
#include "kvtransfer/page_link.h"
#include "kvtransfer/page_request.h"
#include "kvtransfer/page_transfer.h"
#include "kvtransfer/wire_messages.h"

namespace tandem {

// A lease of a peer that a reader holds.
struct BorrowedLease {
  PageTransfer::Remote remote;
  Address address;
  std::string request_id;
  LinkId peer = 0;  // 0 before connecting and after losing the peer; used by the transfer's thread
};

// The thread that communicates with peers. Only this thread uses the link, and it blocks only in
// PageLink::Wait. Other threads post commands to it. Thread-safe from Start to Stop.
class TransferThread final : private LinkEvents {
 public:
  struct Options {
    Address address;
    Handshake::Self self;
    OfferedPages::Options offered;
    absl::Duration timeout;
  };
  explicit TransferThread(Options options);
  ~TransferThread() override;

  // Listens. Errors are those of PageLink::Open.
  absl::Status Start();
  // Closes every connection. Awaited pages fail.
  void Stop();

  int port() const { return port_; }
  const std::string& engine_id() const { return options_.self.hello.engine_id; }
  OfferedPages& offered() { return offered_; }
  TransferCounts stats() const;
  // Calls `count` with the statistics, under their lock.
  void Count(absl::FunctionRef<void(TransferCounts&)> count);

  // ---- For readers; none of these blocks ----
  void Begin(std::shared_ptr<BorrowedLease> lease);
  std::shared_ptr<PageRequest> AskFor(const std::shared_ptr<BorrowedLease>& lease,
                                      const PoolId& pool, absl::Span<const PageRef> run,
                                      size_t page_bytes);
  void Cancel(std::shared_ptr<BorrowedLease> lease, std::shared_ptr<PageRequest> asked);
  void End(std::shared_ptr<BorrowedLease> lease);

 private:
  struct Peer {
    Peer(LinkId link, std::string name, const Handshake& handshake, OfferedPages* offered,
         PageLink* page_link)
        : link(link),
          name(std::move(name)),
          handshake(handshake),
          heard(Instant::Now()),
          next_beat(heard),
          sender(offered, page_link, link) {}

    const LinkId link;
    const std::string name;  // in logs
    std::string key;         // in connected_; empty if the peer connected to us
    Handshake handshake;
    bool is_refused = false;
    Instant heard;      // time of the last message or page, or since when one is due
    Instant next_beat;  // when to send the next heartbeats and Coming messages
    std::vector<std::shared_ptr<BorrowedLease>> leases;
    std::vector<WireMessage> waiting;  // messages to send after the handshake
    absl::flat_hash_map<uint64_t, std::shared_ptr<PageRequest>> asked;
    PageSender sender;
  };

  void OnAccepted(LinkId link, const std::string& peer) override;
  void OnMessage(LinkId link, absl::Span<const std::byte> bytes) override;
  PageBuffer OnPage(const PageHeader& header, size_t size) override;
  void OnPageReceived(const PageHeader& header) override;
  void OnPageSent(LinkId link, size_t size) override;
  void OnClosed(LinkId link, const std::string& reason) override;

  bool Post(std::function<void()> command);
  bool RunCommands();
  absl::Status Open();
  void Run();
  void RunUntilStopped();
  void Connect(const std::shared_ptr<BorrowedLease>& lease);
  void Tick(Instant now);
  // Returns why the peer must be given up, or an empty string.
  std::string TimeoutReason(const Peer& peer, Instant now) const;
  void Beat(Peer* peer);
  bool HasActivity();

  Peer* Find(LinkId link);
  Peer* FindAsked(uint64_t ask);
  Peer* AddPeer(LinkId link, std::string name, const std::string& engine_id);
  void Say(Peer* peer, const WireMessage& message);
  void Shake(Peer* peer, const WireMessage& message);
  absl::Status Take(Peer* peer, const WireMessage& message);
  void Abandon(Peer* peer, const std::string& reason);
  void Lose(LinkId link, const std::string& reason);
  void ForgetIfComplete(
      Peer* peer, absl::flat_hash_map<uint64_t, std::shared_ptr<PageRequest>>::iterator asked);
  void Owes(Peer* peer);

  Options options_;  // constant after Start
  OfferedPages offered_;
  const std::shared_ptr<SpareBuffers> spares_ = std::make_shared<SpareBuffers>();
  int port_ = 0;
  std::unique_ptr<PageLink> link_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;              // accepts commands
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);  // result of Start, once known
  TransferCounts stats_ ABSL_GUARDED_BY(mutex_);

  // ---- Used only by the thread ----
  absl::flat_hash_map<LinkId, std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<std::string, LinkId> connected_;  // keyed by address and engine
};

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_TRANSFER_THREAD_H_
