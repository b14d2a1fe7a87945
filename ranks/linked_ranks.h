// Ranks on several machines, each with its own copy of the group's memory.
#ifndef TANDEM_RANKS_LINKED_RANKS_H_
#define TANDEM_RANKS_LINKED_RANKS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ranks/rank_group.h"

namespace tandem {

struct LinkedRankOptions {
  int rank = 0;
  int world = 1;
  // "HOST:PORT", at which rank 0 listens and which the others connect to. Port 0, for rank 0, is
  // any that is free.
  std::string rendezvous{};
  // That all ranks share: each proves to know it, and nothing is encrypted
  // (kvtransfer/handshake.h). Empty only where HOST is a loopback address.
  std::string secret{};
  std::string version{};  // of the program, which must be everyone's; empty for this one's
  // A rank whose process does not say for so long that it lives is given up. It says so from a
  // thread of its own, so this is not how long a pass may take.
  absl::Duration silence = absl::Seconds(10);
  absl::Duration patience = absl::Minutes(10);  // until every rank has joined
  // Called on rank 0 when the others can join, with the address.
  std::function<void(const std::string& address)> on_listening{};
  // Called once, on a thread of the group's, if the group fails after every rank has joined; not
  // when rank 0 ends it because its work is done. Must not destroy the group.
  std::function<void(const absl::Status& why)> on_failure{};
};

// Returns when every rank has joined. The others may start before rank 0 does, and try again until
// it listens. A rank that is refused (another secret, version, world, or a rank that is taken) has
// PERMISSION_DENIED, and rank 0 waits for another one. INVALID_ARGUMENT and UNAVAILABLE name
// `rank`, `rendezvous` or `rendezvous_secret`; UNIMPLEMENTED in a build without UCX.
absl::StatusOr<std::unique_ptr<RankGroup>> JoinLinkedRanks(const LinkedRankOptions& options);

}  // namespace tandem

#endif  // TANDEM_RANKS_LINKED_RANKS_H_
