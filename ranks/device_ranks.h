// Ranks whose models are on devices, each of which is another one's.
#ifndef TANDEM_RANKS_DEVICE_RANKS_H_
#define TANDEM_RANKS_DEVICE_RANKS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "ranks/rank_group.h"

namespace tandem {

// Joins the devices of a group: what is gathered is so by the devices, and everything else is
// `host`'s, which also says when the group has ended. Waits for all ranks to call it.
//   devices: ColumnGatherer::NewGroup's words, the same on all ranks
// Each rank's memory is its device's own, and what grows is at another place, without its contents.
// REQUIRES: backend->gatherer() is there and open; `host` outlives the backend, the backend what is
// returned.
absl::StatusOr<std::unique_ptr<RankGroup>> JoinDeviceRanks(RankGroup* host, Backend* backend,
                                                           const std::string& devices);

}  // namespace tandem

#endif  // TANDEM_RANKS_DEVICE_RANKS_H_
