#ifndef TANDEM_ENGINE_CLIENTS_H_
#define TANDEM_ENGINE_CLIENTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/hash_map.h"

namespace tandem {

// A client with requests in the engine (Request::client).
struct EngineClient {
  int64_t served = 0;              // tokens of its admitted prompts, and those generated for it
  int64_t planned = 0;             // the same, with the prompts that are about to be admitted
  absl::Duration constraint_debt;  // of requests that have ended (ShareConstraintTime)
};

// The clients of an engine. Thread-compatible.
class Clients {
 public:
  // Returns the client of this name. A client that has no requests is served no more than others
  // for the time when it was away: its count rises to the least of those that have requests.
  std::shared_ptr<EngineClient> Get(const std::string& name);
  // Pays up to `time` of the debts of requests that have ended.
  void PayDebts(absl::Duration time);
  size_t size() const { return clients_.size(); }

 private:
  HashMap<std::string, std::shared_ptr<EngineClient>> clients_;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_CLIENTS_H_
