#ifndef TANDEM_SERVER_HTTP_CONNECTION_SET_H_
#define TANDEM_SERVER_HTTP_CONNECTION_SET_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/service.h"
#include "server/asio.h"

namespace tandem {

struct ConnectionLimits {
  int max_connections = 256;
  uint32_t max_header_bytes = 16 << 10;
  absl::Duration read_timeout = absl::Seconds(60);   // for a request's head, and for its body
  absl::Duration write_timeout = absl::Seconds(30);  // for the client to take what is sent
  // How long a stream waits for its first token before its head is sent, and a comment then and
  // after each such time: proxies and clients give up on what says nothing. As often an answer that
  // is awaited is looked for.
  absl::Duration comment_interval = absl::Seconds(10);
};

class Connection;

// The connections that are open, and what they share. Thread-safe.
//
// A connection is idle but for its exchanges, each from a request's head to the end of its answer.
// Over the limit the idle one whose last request is the longest ago makes room. Where all are busy
// a few more may come and ask how the server is; whatever else they ask is refused.
class ConnectionSet {
 public:
  static constexpr int kPlacesForProbes = 8;

  // The pools are for requests whose work would make others wait, and for those that wait more
  // than they work. Without a pool, they do.
  ConnectionSet(Service* service, const ConnectionLimits& limits,
                net::thread_pool* slow_work = nullptr, net::thread_pool* waiting_work = nullptr)
      : service_(service), limits_(limits), slow_work_(slow_work), waiting_work_(waiting_work) {}

  // False if there is no place left; it is one of the set even then, until it is gone.
  bool Add(const std::shared_ptr<Connection>& connection);
  void Remove(Connection* connection);
  // Closes the idle one whose last request is the longest ago, if one is idle.
  void MakeRoom();
  // Closes all at once; their generations are cancelled.
  void StopAll();

  // False if `connection` was closed to make room, and this is too late.
  bool BeginExchange(Connection* connection);
  void EndExchange(Connection* connection);

  int size() const;
  // Requests that are being read, worked on or answered.
  int num_exchanges() const;
  // More of them than there are places.
  bool is_crowded() const { return num_exchanges() > limits_.max_connections; }
  absl::Status TooManyConnections() const;

  Service& service() { return *service_; }
  const ConnectionLimits& limits() const { return limits_; }
  net::thread_pool* slow_work() { return slow_work_; }
  net::thread_pool* waiting_work() { return waiting_work_; }

 private:
  struct Entry {
    std::weak_ptr<Connection> connection;
    uint64_t turn = 0;  // grows with the time of its last request, or else of its coming
    bool is_idle = true;
  };
  // Takes it out of the set. Null if none is idle but `except`.
  std::shared_ptr<Connection> TakeLongestIdle(const Connection* except)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Service* service_;
  const ConnectionLimits limits_;
  net::thread_pool* const slow_work_;
  net::thread_pool* const waiting_work_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Connection*, Entry> open_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_exchanges_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_CONNECTION_SET_H_
