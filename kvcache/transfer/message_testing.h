// For tests: one message of each type.
#ifndef TANDEM_KVCACHE_TRANSFER_MESSAGE_TESTING_H_
#define TANDEM_KVCACHE_TRANSFER_MESSAGE_TESTING_H_

#include <string>
#include <vector>

#include "kvcache/transfer/wire_messages.h"

namespace tandem {

inline std::vector<WireMessage> MessageSamples() {
  const PoolId pool{PartHasher().Add("pool").Finish()};
  const PageKey key = RootKey(pool, 0);
  return {Hello{.version = 7,
                .engine_id = "engine",
                .peer_engine_id = "peer",
                .build = "build",
                .pools = {pool, {}},
                .lease_ms = 30000},
          AskPages{.number = ~uint64_t{0},
                   .lease = "lease",
                   .request_id = "request",
                   .pool = pool,
                   .keys = {key, {}}},
          Cancel{~uint64_t{0}},
          Heartbeat{"lease"},
          Release{""},
          Finish{.number = 1, .num_sent = 3, .reason = "because"}};
}

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_MESSAGE_TESTING_H_
