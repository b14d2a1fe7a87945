#ifndef TANDEM_KVCACHE_TRANSFER_TRANSFER_THREAD_H_
#define TANDEM_KVCACHE_TRANSFER_TRANSFER_THREAD_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/net/address.h"
#include "base/net/link.h"
#include "kvcache/transfer/offered_pages.h"
#include "kvcache/transfer/page_request.h"
#include "kvcache/transfer/page_transfer.h"
#include "kvcache/transfer/wire_messages.h"

namespace tandem {

// A lease of a peer that a reader holds.
struct BorrowedLease {
  PageTransfer::Remote remote;
  Address address;
  std::string request_id;
  LinkId peer = 0;  // 0 before connecting and after losing the peer; used by the transfer's thread
};

// The thread that communicates with peers. Only this thread uses the link, and it blocks only in
// Link::Wait. Other threads post commands to it. Thread-safe from Start to Stop.
class TransferThread final : private LinkEvents {
 public:
  struct Options {
    Address address;
    std::vector<std::string> secrets;  // ParseSecrets
    Hello hello;
    OfferedPages::Options offered;
    absl::Duration timeout;
    std::string fabric = "tcp";  // LinkOptions::fabric
  };
  explicit TransferThread(Options options);
  ~TransferThread() override;

  // Listens. Errors are those of Link::Open.
  absl::Status Start();
  // Closes every connection. Awaited pages fail.
  void Stop();

  int port() const { return port_; }
  const std::string& engine_id() const { return options_.hello.engine_id; }
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
  // `has_taken`: the pages of a run, to its end; the lease may then be released
  void End(std::shared_ptr<BorrowedLease> lease, bool has_taken);

 private:
  struct Peer {
    Peer(LinkId link, std::string name, OfferedPages* offered, Link* wire)
        : link(link), name(std::move(name)), sender(offered, wire, link) {}

    const LinkId link;
    const std::string name;      // in logs
    std::string key;             // in connected_; empty if the peer connected to us
    std::string engine_id;       // the expected one until it has greeted; empty: any
    std::optional<Hello> hello;  // once it has greeted
    Instant next_beat;           // when to send the next heartbeats
    Instant used;                // when it last had a lease or pages to send or to receive
    std::vector<std::shared_ptr<BorrowedLease>> leases;
    std::vector<WireMessage> waiting;  // messages to send after the greetings
    HashMap<uint64_t, std::shared_ptr<PageRequest>> asked;
    PageSender sender;
  };

  void OnOpened(LinkId link, const std::string& peer, absl::string_view scope) override;
  void OnRefused(const std::string& peer, const absl::Status& why) override;
  void OnMessage(LinkId link, absl::Span<const std::byte> bytes) override;
  BlockBuffer OnBlock(LinkId link, const BlockHeader& header, size_t size) override;
  void OnBlockReceived(LinkId link, const BlockHeader& header) override;
  void OnBlockSent(LinkId link, size_t size) override;
  void OnClosed(LinkId link, const absl::Status& why, bool is_peers) override;

  bool Post(std::function<void()> command);
  bool RunCommands();
  absl::Status Open();
  void Run();
  void RunUntilStopped();
  void Connect(const std::shared_ptr<BorrowedLease>& lease);
  bool MayConnect(const std::string& address);
  void Tick(Instant now);
  void Beat(Peer* peer);

  Peer* Find(LinkId link);
  Peer* AddPeer(LinkId link, std::string name);
  void Send(Peer* peer, const WireMessage& message);
  absl::Status Greet(Peer* peer, const Hello& hello);
  absl::Status Take(Peer* peer, const WireMessage& message);
  void CountRefusal(const std::string& peer, absl::string_view reason);
  void Drop(LinkId link, const absl::Status& why, bool is_closed);
  void ForgetIfComplete(Peer* peer,
                        HashMap<uint64_t, std::shared_ptr<PageRequest>>::iterator asked);

  Options options_;  // constant after Start
  OfferedPages offered_;
  const std::shared_ptr<SpareBuffers> spares_ = std::make_shared<SpareBuffers>();
  std::atomic<uint64_t> last_ask_ = 0;  // AskPages::number
  int port_ = 0;
  std::unique_ptr<Link> link_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;              // accepts commands
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mutex_);  // result of Start, once known
  TransferCounts stats_ ABSL_GUARDED_BY(mutex_);

  // ---- Used only by the thread ----
  HashMap<LinkId, std::unique_ptr<Peer>> peers_;
  HashMap<std::string, LinkId> connected_;      // keyed by address and engine
  HashMap<std::string, Instant> next_attempt_;  // to connect, keyed by address
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_TRANSFER_THREAD_H_
