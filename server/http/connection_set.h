#ifndef TANDEM_SERVER_HTTP_CONNECTION_SET_H_
#define TANDEM_SERVER_HTTP_CONNECTION_SET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/hash_map.h"
#include "base/net/beast.h"
#include "server/api/service.h"

namespace tandem {

struct ConnectionLimits {
  int max_connections = 256;
  uint32_t max_header_bytes = 16 << 10;
  absl::Duration read_timeout = absl::Seconds(60);   // for the head of a request, and for its body
  absl::Duration write_timeout = absl::Seconds(30);  // for the client to accept a part of an answer
  // How long a stream waits for its first token before it sends its head and a comment, and then
  // the interval between comments, because proxies and clients give up on silent connections. A
  // pending answer is polled for at the same interval.
  absl::Duration comment_interval = absl::Seconds(10);
};

class Connection;

// The pair of a request; without a value it is always loaded.
using MaybePair = std::optional<absl::StatusOr<PairLease>>;

// Waits for the pair of a request, and keeps the request. When memory is short, it is destroyed
// without a call of Handle.
class PairWaiter {
 public:
  virtual ~PairWaiter() = default;
  // The answer will be a stream, and its pair is not there yet.
  virtual void Wait() = 0;
  // The pair is there, or cannot be had.
  virtual void Handle(MaybePair pair) = 0;
};

// The open connections and their shared state. Thread-safe.
//
// A connection is idle except during exchanges, each from a request's head to the end of its
// answer. Above the limit, the connection that has been idle longest is closed to make room. If all
// are busy, a few more are accepted that may only send probes; other requests are refused.
class ConnectionSet {
 public:
  static constexpr int kPlacesForProbes = 8;

  // `slow_work` is for requests whose work would delay others, `waiting_work` for those that mostly
  // wait; several threads run each. Without it they run on the connection's thread.
  ConnectionSet(Service* service, const ConnectionLimits& limits,
                net::io_context* slow_work = nullptr, net::io_context* waiting_work = nullptr)
      : service_(service), limits_(limits), slow_work_(slow_work), waiting_work_(waiting_work) {}

  // Returns false if the set is full. The connection is a member even then, until it is destroyed.
  bool Add(const std::shared_ptr<Connection>& connection);
  void Remove(Connection* connection);
  // Closes the connection that has been idle longest, unless a request may be on its way. Call
  // repeatedly until there is room: each call asks another.
  void MakeRoom();
  // Closes all connections now and cancels their generations.
  void StopAll();
  // Calls Connection::End for all connections.
  void EndAll(const absl::Status& why, bool closes_idle);
  // Calls Connection::Poll for all connections.
  void PollAll();

  // Returns false if `connection` has already been closed to make room.
  bool BeginExchange(Connection* connection);
  void EndExchange(Connection* connection);

  int size() const;
  // Returns the number of requests being read, handled or answered.
  int num_exchanges() const;
  // Returns whether there are more of them than places.
  bool is_crowded() const { return num_exchanges() > limits_.max_connections; }
  absl::Status TooManyConnections() const;

  // Finds the pair of a request and calls the waiter's functions on threads of `pool`, perhaps Wait
  // only after Handle.
  void FindPair(net::io_context* pool, const HttpRequest& request,
                std::shared_ptr<PairWaiter> waiter);

  Service& service() { return *service_; }
  const ConnectionLimits& limits() const { return limits_; }
  net::io_context* slow_work() { return slow_work_; }
  net::io_context* waiting_work() { return waiting_work_; }

 private:
  std::vector<std::shared_ptr<Connection>> All() const;
  struct Entry {
    std::weak_ptr<Connection> connection;
    // Increases with the time of the last request, of connecting, or of being asked to close.
    uint64_t turn = 0;
    bool is_idle = true;
  };
  using Entries = HashMap<Connection*, Entry>;
  // Returns the end if none other than `except` is idle.
  Entries::iterator LongestIdle(const Connection* except) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Service* service_;
  const ConnectionLimits limits_;
  net::io_context* const slow_work_;
  net::io_context* const waiting_work_;
  mutable absl::Mutex mutex_;
  Entries open_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_exchanges_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_CONNECTION_SET_H_
