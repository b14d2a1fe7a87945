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

// Brings payloads from every rank to all, on a thread of its own: each rank sends its payloads to
// rank 0, which sends them on to the others as they arrive. Payloads belong to steps, which every
// rank counts alike. They travel as pages of a PageLink, so that UCX may use RDMA; small words that
// hold the group together travel as its messages.
//
// Before the group begins, neighbours greet each other with a page: that pages travel is known
// then, and UCX has made its connections. It aborts the process if one ends while it is made
// (ucp_request.c of 1.13.1).
//
// The thread says to each neighbour that this rank lives, whatever the rank computes. The first
// failure ends the group, here and, through rank 0, everywhere.
class RankLink final : private LinkEvents {
 public:
  using Payload = std::shared_ptr<const OfferedPage>;

  RankLink(const LinkedRankOptions& options, const Address& address);
  // Ends the group, and waits a moment for the others to have heard of it.
  ~RankLink() override;

  // Returns when every rank has joined; the error says why that is not so.
  absl::Status Start();

  // ---- Of the thread that computes ----
  // A buffer of this size, with any bytes in it.
  std::vector<std::byte> Take(size_t size) { return spares_->Take(size); }
  // Begins to bring this rank's payload of the step to all others; on the others only rank 0 has
  // it. It must not be empty.
  void Give(uint64_t step, std::vector<std::byte> bytes);
  // Waits for what `rank` gives in this step. Null if the group has failed.
  Payload Await(uint64_t step, int rank);
  // Nothing before this step is wanted any more. The other ranks are at most kMaxStepsAhead from
  // it, or have no right to be.
  void EnterStep(uint64_t step);
  static constexpr int kMaxStepsAhead = 32;
  // What may lie here that others gave and this rank has not come to.
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
    int rank = -1;             // after it has joined
    uint64_t token = 0;        // what its pages are asked for with
    bool has_greeted = false;  // with a page
    bool is_greeted = false;   // with one, and has said so
    bool is_refused = false;
    // Silence is counted in looks as well as by the clock: a process that was stopped gives
    // nobody up.
    Instant heard = Instant::Now();
    int looks = 0;
  };
  struct Arrival {
    size_t size = 0;
    PageBuffer filling;
    Payload payload;  // when it is whole
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
  bool RunOnce();  // false if nothing happened
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
  const uint64_t token_;  // of pages for this rank: they are from its group
  const std::shared_ptr<SpareBuffers> spares_ = std::make_shared<SpareBuffers>();
  std::unique_ptr<PageLink> link_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::atomic<uint64_t> news_{0};  // moves with every arrival and failure, under the lock
  std::atomic<bool> has_failed_{false};
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // link_ can be woken
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;  // every rank has joined
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);  // by PageHeader::index
  std::vector<std::pair<uint64_t, Payload>> given_ ABSL_GUARDED_BY(mutex_);

  // ---- Of the link's thread ----
  Handshake::Self self_;
  std::string group_;  // rank 0's name of this group
  bool is_greeted_by_zero_ = false;
  absl::flat_hash_map<LinkId, std::unique_ptr<Peer>> peers_;
  std::string rendezvous_;   // as digits
  std::string last_reason_;  // why the group has not begun
  bool begins_ = false;      // has_begun_
  bool has_told_ = false;    // the failure
  Instant started_ = Instant::Now();
  Instant next_tick_ = started_;
  Instant next_connect_;
  std::optional<Instant> drained_by_;
};

}  // namespace tandem

#endif  // TANDEM_RANKS_RANK_LINK_H_
