// Groups over a loopback address, for tests.
#ifndef TANDEM_MODEL_RANKS_LINKED_TESTING_H_
#define TANDEM_MODEL_RANKS_LINKED_TESTING_H_

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ranks/linked_ranks.h"

namespace tandem {

using JoinedRank = absl::StatusOr<std::unique_ptr<RankGroup>>;

// Rank 0 while it waits for the others.
class WaitingRankZero {
 public:
  explicit WaitingRankZero(LinkedRankOptions options) {
    std::promise<std::string> listening;
    std::future<std::string> address = listening.get_future();
    if (options.rendezvous.empty()) options.rendezvous = "127.0.0.1:0";
    thread_ = std::thread([this, own = std::move(options), said = std::move(listening)]() mutable {
      bool is_said = false;
      own.on_listening = [&](const std::string& found) {
        is_said = true;
        said.set_value(found);
      };
      joined_ = JoinLinkedRanks(own);
      if (!is_said) said.set_value("");
    });
    address_ = address.get();
  }
  ~WaitingRankZero() {
    if (thread_.joinable()) thread_.join();
  }
  const std::string& address() const { return address_; }  // empty if it does not listen
  JoinedRank Join() {
    thread_.join();
    return std::move(joined_);
  }

 private:
  std::string address_;
  JoinedRank joined_;
  std::thread thread_;
};

// Joins all ranks of a group and returns them in order. The error is that of the first rank that
// failed.
inline absl::StatusOr<std::vector<std::unique_ptr<RankGroup>>> JoinLoopback(
    LinkedRankOptions options) {
  options.rank = 0;
  WaitingRankZero zero(options);
  std::vector<JoinedRank> joined(options.world);
  std::vector<std::thread> threads;
  if (!zero.address().empty()) {
    options.rendezvous = zero.address();
    for (int r = 1; r < options.world; ++r) {
      threads.emplace_back([=, &joined]() mutable {
        options.rank = r;
        joined[r] = JoinLinkedRanks(options);
      });
    }
  }
  joined[0] = zero.Join();
  for (std::thread& thread : threads) thread.join();
  std::vector<std::unique_ptr<RankGroup>> groups;
  for (JoinedRank& one : joined) {
    if (!one.ok()) return one.status();
    groups.push_back(*std::move(one));
  }
  return groups;
}

}  // namespace tandem

#endif  // TANDEM_MODEL_RANKS_LINKED_TESTING_H_
