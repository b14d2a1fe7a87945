// The connections of a group whose ranks are on several machines: a star around rank 0.
#ifndef TANDEM_RANKS_RANK_LINK_H_
#define TANDEM_RANKS_RANK_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "kvstore/spare_buffers.h"
#include "kvtransfer/handshake.h"
#include "kvtransfer/message_socket.h"
#include "kvtransfer/page_link.h"
#include "nlohmann/json.hpp"
#include "ranks/linked_ranks.h"
#include "ranks/rank_group.h"

namespace tandem {

// Sends payloads from every rank to all others, on its own thread: each rank sends its payloads to
// rank 0, which forwards them to the others as they arrive. Payloads belong to steps, which every
// rank counts in the same way. They are sent as pages of a PageLink, so that UCX can use RDMA.
// Small control messages are sent as messages of the PageLink.
//
// Before the group begins, neighbours greet each other with a page. This shows that pages arrive,
// and makes UCX open its connections: UCX aborts the process if a connection ends while it is being
// opened (ucp_request.c of 1.13.1).
//
// The thread sends heartbeats to each neighbour, whatever the rank computes. The first failure ends
// the group, here and, through rank 0, everywhere.
class RankLink final : private LinkEvents {
 public:
  using Payload = std::shared_ptr<const OfferedPage>;

  RankLink(const LinkedRankOptions& options, const Address& address);
  // Ends the group, and waits briefly until the others have been told.
  ~RankLink() override;

  // Returns when every rank has joined, or an error that says why they did not.
  absl::Status Start();

  // ---- Used by the computing thread ----
  // Returns a buffer of this size with unspecified contents.
  std::vector<std::byte> Take(size_t size) { return spares_->Take(size); }
  // Starts sending this rank's payload of the step to rank 0, and through it to all others. The
  // payload must not be empty.
  void Give(uint64_t step, std::vector<std::byte> bytes);
  // Waits for the payload of `rank` in this step. Returns null if the group has failed.
  Payload Await(uint64_t step, int rank);
  // Starts a step: drops payloads of earlier steps. Other ranks may be at most kMaxStepsAhead steps
  // ahead; a payload for a later step fails the group.
  void EnterStep(uint64_t step);
  static constexpr int kMaxStepsAhead = 32;
  // Maximum bytes of payloads that wait until this rank reaches their step.
  static constexpr size_t kMaxWaitingBytes = size_t{4} << 30;

  absl::Status status() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // Thread-safe.
  void Fail(const absl::Status& why);

 private:
  struct Peer {
    Peer(LinkId link, std::string name, const Handshake& handshake)
        : link(link), name(std::move(name)), handshake(handshake) {}

    const LinkId link;
    const std::string name;  // its address
    Handshake handshake;
    int rank = -1;             // -1 until it has joined
    uint64_t token = 0;        // sent with pages for this peer
    bool has_greeted = false;  // its page has arrived here
    bool is_greeted = false;   // it has confirmed our page
    bool is_refused = false;
    // Silence is measured in ticks as well as by the clock, so that a process that was stopped does
    // not give up its peers.
    Instant heard = Instant::Now();
    int looks = 0;
  };
  struct Arrival {
    size_t size = 0;
    PageBuffer filling;
    Payload payload;  // set when it is complete
  };

  void OnAccepted(LinkId link, const std::string& peer) override;
  void OnMessage(LinkId link, absl::Span<const std::byte> bytes) override;
  PageBuffer OnPage(const PageHeader& header, size_t size) override;
  void OnPageReceived(const PageHeader& header) override;
  void OnPageSent(LinkId, size_t) override {}
  void OnClosed(LinkId link, const std::string& reason) override;

  int rank() const { return options_.rank; }
  absl::Status Open();
  void Run();
  bool RunOnce();  // returns false if nothing happened
  bool HasEnded();
  bool SendGiven();
  void TellFailure();
  void Tick(Instant now);
  void Connect();
  void TryAgain(const std::string& reason);
  Peer* AddPeer(LinkId link, std::string name, absl::string_view engine_id);
  Peer* Find(LinkId link);
  void Say(const Peer& peer, const nlohmann::json& words);
  absl::Status TakeMessage(Peer* peer, absl::Span<const std::byte> bytes);
  absl::Status Shake(Peer* peer, absl::Span<const std::byte> bytes);
  absl::Status TakeWords(Peer* peer, const nlohmann::json& words);
  absl::Status Admit(Peer* peer, const nlohmann::json& join);
  void Greet(const Peer& peer);
  void TakeGreeting(int rank);
  void BeginIfComplete();
  void Begin();
  void Reject(Peer* peer, const absl::Status& why);
  void Lose(LinkId link, const std::string& reason);
  void SendToAllBut(int rank, uint64_t index, const Payload& payload);
  Payload MakePayload(std::vector<std::byte> bytes);
  bool IsExpected(uint64_t index, size_t size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MissingRanks() const;

  const LinkedRankOptions options_;
  const Address address_;  // the rendezvous
  const absl::Duration tick_;
  const uint64_t token_;  // in pages for this rank, to show that they are from its group
  const std::shared_ptr<SpareBuffers> spares_ = std::make_shared<SpareBuffers>();
  std::unique_ptr<PageLink> link_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::atomic<uint64_t> news_{0};  // incremented under the lock with every arrival and failure
  std::atomic<bool> has_failed_{false};
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // link_ can be woken
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;  // every rank has joined
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);  // by PageHeader::index
  std::vector<std::pair<uint64_t, Payload>> given_ ABSL_GUARDED_BY(mutex_);

  // ---- Used by the link's thread ----
  Handshake::Self self_;
  std::string group_;  // rank 0's name of this group
  bool is_greeted_by_zero_ = false;
  absl::flat_hash_map<LinkId, std::unique_ptr<Peer>> peers_;
  std::string rendezvous_;   // with a numeric address
  std::string last_reason_;  // why the group has not begun
  bool begins_ = false;      // the link thread's copy of has_begun_
  bool has_told_ = false;    // the neighbours about the failure
  Instant started_ = Instant::Now();
  Instant next_tick_ = started_;
  Instant next_connect_;
  std::optional<Instant> drained_by_;
};

}  // namespace tandem

#endif  // TANDEM_RANKS_RANK_LINK_H_
