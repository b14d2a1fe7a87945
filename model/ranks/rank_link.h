// The connections of a group whose ranks are on several machines: a star around rank 0.
#ifndef TANDEM_MODEL_RANKS_RANK_LINK_H_
#define TANDEM_MODEL_RANKS_RANK_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "base/net/address.h"
#include "base/net/link.h"
#include "base/spare_buffers.h"
#include "model/ranks/linked_ranks.h"
#include "model/ranks/rank_group.h"
#include "tandem/json_value.h"

namespace tandem {

// Sends payloads from every rank to all others, on its own thread: each rank sends its payloads to
// rank 0, which forwards them to the others as they arrive. Payloads belong to steps, which every
// rank counts in the same way. They are blocks of a Link; its messages admit the ranks. Only rank 0
// listens.
//
// The thread sends signs of life to each neighbour, whatever the rank computes. The first failure
// ends the group, here and, through rank 0, everywhere.
class RankLink final : private LinkEvents {
 public:
  using Payload = std::shared_ptr<const std::vector<std::byte>>;

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
    std::string name;  // its address
    int rank = -1;     // -1 until it has joined
    int claimed = 0;   // the rank of its key
  };
  struct Arrival {
    size_t size = 0;
    BlockBuffer buffer;
    bool is_complete = false;
  };

  void OnOpened(LinkId link, const std::string& peer, absl::string_view scope) override;
  void OnRefused(const std::string& peer, const absl::Status& why) override;
  void OnMessage(LinkId link, absl::Span<const std::byte> bytes) override;
  BlockBuffer OnBlock(LinkId link, const BlockHeader& header, size_t size) override;
  void OnBlockReceived(LinkId link, const BlockHeader& header) override;
  void OnBlockSent(LinkId, size_t) override {}
  void OnClosed(LinkId link, const absl::Status& why, bool is_peers) override;

  int rank() const { return options_.rank; }
  absl::Status Open();
  void Run();
  bool RunOnce();  // returns false if nothing happened
  bool HasEnded();
  bool SendGiven();
  void TellFailure();
  void Tick(Instant now);
  void Connect();
  void TryAgain(absl::string_view reason);
  void Send(LinkId link, const SortedJson& words);
  absl::Status TakeWords(LinkId link, Peer* peer, const SortedJson& words);
  absl::Status Admit(LinkId link, Peer* peer, const SortedJson& join);
  void Begin();
  void Reject(LinkId link, const absl::Status& why);
  void Drop(LinkId link, const absl::Status& why);
  void SendToAllBut(int rank, uint64_t index, const Payload& payload);
  BlockBuffer MakeBuffer(std::vector<std::byte> bytes);
  bool IsExpected(uint64_t index, size_t size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MissingRanks() const;

  const LinkedRankOptions options_;
  const Address address_;  // the rendezvous
  const absl::Duration tick_;
  const std::shared_ptr<SpareBuffers> spares_ = std::make_shared<SpareBuffers>();
  std::unique_ptr<Link> link_;
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
  HashMap<uint64_t, Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);  // by step and rank
  std::vector<std::pair<uint64_t, Payload>> given_ ABSL_GUARDED_BY(mutex_);

  // ---- Used by the link's thread ----
  std::string group_;  // rank 0's name of this group
  HashMap<LinkId, Peer> peers_;
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

#endif  // TANDEM_MODEL_RANKS_RANK_LINK_H_
