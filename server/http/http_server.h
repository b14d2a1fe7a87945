#ifndef TANDEM_SERVER_HTTP_HTTP_SERVER_H_
#define TANDEM_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/service.h"
#include "server/http/connection.h"
#include "tandem/engine.h"

namespace tandem {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free port
  int io_threads = 2;
  absl::Duration drain_timeout = absl::Seconds(30);  // for running requests when the server stops
  ServiceOptions service{};
  ConnectionLimits limits{};
};

// The HTTP endpoint of an engine (docs/server/serving.md).
//
//   auto server = HttpServer::Start(engine.get(), {.port = 8080});
//   ...
//   (*server)->Drain();  // on SIGTERM
//   (*server)->AwaitEnd();
//
// Thread-safe.
class HttpServer {
 public:
  // Starts listening and serving. `engine` must outlive the server. Returns UNAVAILABLE, naming the
  // address, if the server cannot listen there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Engine* engine, ServerOptions options);
  // The same for options.service.pairs, which are loaded when requests need them.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(ServerOptions options);
  // Stops at once and cancels running generations.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "127.0.0.1:8080"
  // Refuses new work, lets running work finish within the drain timeout, and ends. Work that is
  // then still running fails with 503, or with an error event in a stream that has begun. Each
  // client has a few seconds to read its answer.
  virtual void Drain() = 0;
  // Drains without waiting for running work, which fails with `why`.
  virtual void StopNow(const absl::Status& why) = 0;
  // Waits for the end of a drain.
  virtual void AwaitEnd() = 0;
  virtual Service& service() = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_HTTP_SERVER_H_
