#include "engine/clients.h"

#include <algorithm>
#include <limits>

namespace tandem {
namespace {

bool IsAway(const std::shared_ptr<EngineClient>& client) { return client.use_count() == 1; }

}  // namespace

std::shared_ptr<EngineClient> Clients::Get(const std::string& name) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t least = kNone;
  for (const auto& [other, client] : clients_) {
    if (!IsAway(client)) least = std::min(least, client->served);
  }
  // A client without a count would get the same one on its return.
  std::erase_if(clients_, [least](const auto& entry) {
    const std::shared_ptr<EngineClient>& client = entry.second;
    return IsAway(client) && client->served <= least &&
           client->constraint_debt == absl::ZeroDuration();
  });
  auto place = clients_.find(name);
  if (place == clients_.end()) {
    place = clients_.emplace(name, std::make_shared<EngineClient>()).first;
  }
  const std::shared_ptr<EngineClient>& client = place->second;
  if (IsAway(client) && least != kNone) client->served = std::max(client->served, least);
  return client;
}

void Clients::PayDebts(absl::Duration time) {
  for (auto& [name, client] : clients_) {
    const absl::Duration paid = std::min(time, client->constraint_debt);
    client->constraint_debt -= paid;
    time -= paid;
  }
}

}  // namespace tandem
