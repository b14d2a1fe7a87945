#include "server/http_server.h"

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/asio.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

using net::ip::tcp;

// How often a server that drains looks whether it is done.
constexpr auto kDrainStep = std::chrono::milliseconds(10);
// How long cancelled generations are waited for before that is said: they end with their round.
constexpr absl::Duration kLongRound = absl::Seconds(10);
// How long accepting rests when the system has no more sockets.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(Engine* engine, ServerOptions options)
      : options_(std::move(options)),
        service_(engine, options_.service),
        connections_(&service_, options_.limits),
        acceptor_(net::make_strand(io_)),
        timer_(acceptor_.get_executor()) {
    connections_.set_slow_work(&slow_work_);
  }

  ~HttpServerImpl() override {
    service_.admission().Close();
    connections_.StopAll();
    slow_work_.stop();
    slow_work_.join();
    // The engine's callbacks use what is about to be destroyed.
    while (!service_.admission().AwaitEmpty(kLongRound)) {
      spdlog::warn("stopping sequences={}", service_.admission().num_inside());
      connections_.StopAll();
    }
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Listen();

  int port() const override { return port_; }
  std::string address() const override {
    const bool is_v6 = options_.host.find(':') != std::string::npos;
    return is_v6 ? absl::StrCat("[", options_.host, "]:", port_)
                 : absl::StrCat(options_.host, ":", port_);
  }

  void Drain() override {
    service_.admission().Close();
    net::post(acceptor_.get_executor(), [this] {
      if (is_draining_) return;
      is_draining_ = true;
      deadline_ = absl::Now() + options_.drain_timeout;
      DrainStep();
    });
  }
  void StopNow() override {
    net::post(acceptor_.get_executor(), [this] { deadline_ = absl::InfinitePast(); });
  }
  void AwaitEnd() override { ended_.WaitForNotification(); }
  Service& service() override { return service_; }

 private:
  void Run();
  void Accept();
  void OnAccept(beast::error_code error, tcp::socket socket);
  void DrainStep();

  const ServerOptions options_;
  Service service_;
  ConnectionSet connections_;
  net::io_context io_;  // after what its handlers use
  net::thread_pool slow_work_{1};
  tcp::acceptor acceptor_;
  net::steady_timer timer_;
  int port_ = 0;
  bool is_draining_ = false;  // both of the acceptor's strand
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Notification ended_;
  std::vector<std::thread> threads_;
};

absl::Status HttpServerImpl::Listen() {
  const auto failed = [this](const beast::error_code& error) {
    return absl::UnavailableError(absl::StrCat("cannot listen at ", options_.host, ":",
                                               options_.port, ": ", error.message()));
  };
  beast::error_code error;
  tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options_.host, absl::StrCat(options_.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return failed(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (error) return failed(error);
  acceptor_.set_option(net::socket_base::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  if (error) return failed(error);
  acceptor_.listen(net::socket_base::max_listen_connections, error);
  if (error) return failed(error);
  port_ = acceptor_.local_endpoint(error).port();
  if (error) return failed(error);
  net::post(acceptor_.get_executor(), [this] { Accept(); });
  for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { Run(); });
  return absl::OkStatus();
}

// What a library throws in a handler ends that handler, not the server: memory, mostly.
void HttpServerImpl::Run() {
  const auto keep_running = net::make_work_guard(io_);
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      spdlog::error("handler failed: {}", error.what());
    }
  }
}

void HttpServerImpl::Accept() {
  acceptor_.async_accept(
      net::make_strand(io_),
      [this](beast::error_code error, tcp::socket socket) { OnAccept(error, std::move(socket)); });
}

void HttpServerImpl::OnAccept(beast::error_code error, tcp::socket socket) {
  if (!acceptor_.is_open() || error == net::error::operation_aborted) return;
  if (error) {
    // Out of file descriptors, or a client that left before it was met.
    spdlog::warn("accept failed: {}", error.message());
    timer_.expires_after(kAcceptPause);
    timer_.async_wait([this](beast::error_code) { Accept(); });
    return;
  }
  Accept();  // first, since what follows may throw for want of memory
  const auto connection = std::make_shared<Connection>(std::move(socket), &connections_);
  connections_.Add(connection);
  if (connections_.size() > options_.limits.max_connections) {
    connection->Refuse();
  } else {
    connection->Start();
  }
}

// Ends when nobody waits for an answer any more, or at the deadline.
void HttpServerImpl::DrainStep() {
  const bool is_idle = connections_.num_exchanges() == 0 && service_.admission().num_inside() == 0;
  const bool is_late = absl::Now() >= deadline_;
  if (is_late) connections_.StopAll();
  if (!is_idle) {
    // Not the timer of Accept(): both may wait at once.
    auto timer = std::make_shared<net::steady_timer>(acceptor_.get_executor(), kDrainStep);
    timer->async_wait([this, timer](beast::error_code) { DrainStep(); });
    return;
  }
  beast::error_code error;
  acceptor_.close(error);
  connections_.StopAll();
  if (!ended_.HasBeenNotified()) ended_.Notify();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Engine* engine,
                                                              ServerOptions options) {
  auto server = std::make_unique<HttpServerImpl>(engine, std::move(options));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace tandem
