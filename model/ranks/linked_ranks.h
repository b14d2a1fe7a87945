// Ranks on several machines. Each has its own copy of the group's memory.
#ifndef TANDEM_MODEL_RANKS_LINKED_RANKS_H_
#define TANDEM_MODEL_RANKS_LINKED_RANKS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/ranks/rank_group.h"

namespace tandem {

struct LinkedRankOptions {
  int rank = 0;
  int world = 1;
  // "HOST:PORT": rank 0 listens there, and the others connect to it. For rank 0, port 0 means any
  // free port.
  std::string rendezvous{};
  // A secret that all ranks share (base/net/secret.h); the traffic is encrypted
  // (base/net/sealed_stream.h).
  std::string secret{};
  std::string version{};  // version of the program, the same on all ranks; empty: this program's
  // A rank that sends no heartbeat for this long is given up. Heartbeats come from a separate
  // thread, so this does not limit the duration of a pass.
  absl::Duration silence = absl::Seconds(10);
  absl::Duration patience = absl::Minutes(10);  // time limit until every rank has joined
  // Called on rank 0 with its address when the others can join.
  std::function<void(const std::string& address)> on_listening{};
  // Called once, on a thread of the group, if the group fails after every rank has joined. Not
  // called when rank 0 ends the group because its work is done. Must not destroy the group.
  std::function<void(const absl::Status& why)> on_failure{};
};

// Returns when every rank has joined. Other ranks may start before rank 0; they retry until it
// listens. A rank that is refused (another secret, version or world, or a rank that is taken) gets
// PERMISSION_DENIED, and rank 0 keeps waiting. INVALID_ARGUMENT and UNAVAILABLE name `rank`,
// `rendezvous` or `rendezvous_secret`.
absl::StatusOr<std::unique_ptr<RankGroup>> JoinLinkedRanks(const LinkedRankOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODEL_RANKS_LINKED_RANKS_H_
