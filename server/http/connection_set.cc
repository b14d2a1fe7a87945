#include "server/http/connection_set.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "server/api/api_error.h"
#include "server/http/connection.h"
#include "tandem/field_error.h"

namespace tandem {

bool ConnectionSet::Add(const std::shared_ptr<Connection>& connection) {
  std::shared_ptr<Connection> longest_idle;
  bool has_place = true;
  {
    absl::MutexLock lock(&mutex_);
    open_[connection.get()] = {.connection = connection, .turn = ++last_turn_};
    const int num_open = static_cast<int>(open_.size());
    if (num_open > limits_.max_connections) {
      if (const auto longest = LongestIdle(connection.get()); longest != open_.end()) {
        longest_idle = longest->second.connection.lock();
        open_.erase(longest);
      }
      has_place = longest_idle != nullptr || num_open <= limits_.max_connections + kPlacesForProbes;
    }
  }
  if (longest_idle != nullptr) longest_idle->Stop();
  return has_place;
}

ConnectionSet::Entries::iterator ConnectionSet::LongestIdle(const Connection* except) {
  auto longest = open_.end();
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (!it->second.is_idle || it->first == except) continue;
    if (longest == open_.end() || it->second.turn < longest->second.turn) longest = it;
  }
  return longest;
}

void ConnectionSet::MakeRoom() {
  std::shared_ptr<Connection> longest_idle;
  {
    absl::MutexLock lock(&mutex_);
    const auto longest = LongestIdle(nullptr);
    if (longest == open_.end()) return;
    longest->second.turn = ++last_turn_;  // the next call asks another
    longest_idle = longest->second.connection.lock();
  }
  if (longest_idle != nullptr) longest_idle->CloseIfSilent();
}

void ConnectionSet::Remove(Connection* connection) {
  EndExchange(connection);
  absl::MutexLock lock(&mutex_);
  open_.erase(connection);
}

bool ConnectionSet::BeginExchange(Connection* connection) {
  absl::MutexLock lock(&mutex_);
  const auto it = open_.find(connection);
  if (it == open_.end()) return false;
  it->second.turn = ++last_turn_;
  if (std::exchange(it->second.is_idle, false)) ++num_exchanges_;
  return true;
}

void ConnectionSet::EndExchange(Connection* connection) {
  absl::MutexLock lock(&mutex_);
  const auto it = open_.find(connection);
  if (it == open_.end() || std::exchange(it->second.is_idle, true)) return;
  --num_exchanges_;
}

int ConnectionSet::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(open_.size());
}

int ConnectionSet::num_exchanges() const {
  absl::MutexLock lock(&mutex_);
  return num_exchanges_;
}

absl::Status ConnectionSet::TooManyConnections() const {
  return WithCode(absl::UnavailableError(absl::StrCat("too many connections: all of ",
                                                      limits_.max_connections, " are busy")),
                  "too_many_connections");
}

void ConnectionSet::StopAll() {
  for (const auto& connection : All()) connection->Stop();
}

void ConnectionSet::EndAll(const absl::Status& why, bool closes_idle) {
  for (const auto& connection : All()) connection->End(why, closes_idle);
}

void ConnectionSet::PollAll() {
  for (const auto& connection : All()) connection->Poll();
}

std::vector<std::shared_ptr<Connection>> ConnectionSet::All() const {
  std::vector<std::shared_ptr<Connection>> connections;
  absl::MutexLock lock(&mutex_);
  for (const auto& [pointer, entry] : open_) {
    if (std::shared_ptr<Connection> connection = entry.connection.lock()) {
      connections.push_back(std::move(connection));
    }
  }
  return connections;
}

void ConnectionSet::FindPair(net::io_context* pool, const HttpRequest& request,
                             std::shared_ptr<PairWaiter> waiter) {
  net::post(*pool, [this, pool, &request, waiter = std::move(waiter)] {
    MaybePair pair;
    const auto find = [&] {
      pair = service_->PairOf(
          request,
          [pool, waiter](absl::StatusOr<PairLease> late) {
            Attempt("request", [&] {
              net::post(*pool, [waiter, pair = MaybePair(std::move(late))]() mutable {
                waiter->Handle(std::move(pair));
              });
            });
          },
          [&waiter] { Attempt("request", [&waiter] { waiter->Wait(); }); });
    };
    if (absl::Status status = Caught("request", find); !status.ok()) pair = std::move(status);
    if (pair.has_value()) waiter->Handle(std::move(pair));
  });
}

}  // namespace tandem
