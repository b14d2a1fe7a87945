// For tests: one message of each type.
#ifndef TANDEM_KVTRANSFER_MESSAGE_TESTING_H_
#define TANDEM_KVTRANSFER_MESSAGE_TESTING_H_

#include <string>
#include <vector>

#include "kvtransfer/wire_messages.h"

namespace tandem {

inline std::vector<WireMessage> MessageSamples() {
  const PoolId pool{PartHasher().Add("pool").Finish()};
  const PageKey key = RootKey(pool, 0);
  return {Hello{.version = 7,
                .engine_id = "engine",
                .pools = {pool, {}},
                .nonce = key.bytes,
                .page_address = std::string("\0a", 2),
                .lease_ms = 30000},
          SecretProof{key.bytes},
          Refusal{"no"},
          AskPages{.number = ~uint64_t{0},
                   .lease = "lease",
                   .request_id = "request",
                   .pool = pool,
                   .keys = {key, {}}},
          Cancel{~uint64_t{0}},
          Heartbeat{"lease"},
          Release{""},
          Coming{},
          Finish{.number = 1, .num_sent = 3, .reason = "because"}};
}

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_MESSAGE_TESTING_H_
