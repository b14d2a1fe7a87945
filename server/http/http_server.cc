#include "server/http/http_server.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/net/beast.h"
#include "base/status_macros.h"
#include "server/api/api_error.h"

namespace tandem {
namespace {

using net::ip::tcp;

// How often a draining server checks whether it is done.
constexpr auto kDrainStep = std::chrono::milliseconds(10);
// How long to wait for cancelled generations, which end with their round, before logging a warning.
constexpr absl::Duration kLongRound = absl::Seconds(10);
constexpr int kSlowThreads = 2;
// More threads than constraints that compile or wait to be compiled (ConstraintCompiler::Limits),
// so that requests whose constraints are ready find a thread.
constexpr int kWaitingThreads = 8;
// How long to pause when the system is out of sockets or memory.
constexpr auto kPause = std::chrono::milliseconds(100);
// The interval between calls of Connection::Poll.
constexpr auto kPollTime = std::chrono::seconds(1);

// Returns UNAVAILABLE, naming the address.
absl::Status CannotListen(const ServerOptions& options, const beast::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen at ", options.host, ":", options.port, ": ", error.message()));
}

absl::StatusOr<tcp::endpoint> EndpointOf(const ServerOptions& options) {
  net::io_context io;
  beast::error_code error;
  const auto found =
      tcp::resolver(io).resolve(options.host, absl::StrCat(options.port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return CannotListen(options, error);
  return found.begin()->endpoint();
}

// Has the system ignore new clients of a listening socket. They try again after a second, and are
// then refused by the system or served by the next server.
void IgnoreNewClients(int socket) {
  constexpr uint32_t kFlagsOffset = 13;  // in the TCP header (RFC 9293, 3.1)
  constexpr uint32_t kSyn = 2;
  sock_filter drop_if_syn[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlagsOffset),
                               BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kSyn, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
  const sock_fprog filter = {.len = std::size(drop_if_syn), .filter = drop_if_syn};
  // A sandbox may refuse this. Then a client that connects at the last moment may get no answer.
  setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

ServiceOptions ServiceOptionsOf(const ServerOptions& options, const tcp::endpoint& endpoint) {
  ServiceOptions service = options.service;
  service.sites.is_loopback = endpoint.address().is_loopback();
  service.sites.own_host = options.host;
  return service;
}

class HttpServerImpl final : public HttpServer {
 public:
  // Serves options.service.pairs if `engine` is null.
  HttpServerImpl(Engine* engine, ServerOptions options, tcp::endpoint endpoint)
      : options_(std::move(options)),
        endpoint_(std::move(endpoint)),
        service_(engine == nullptr ? Service(ServiceOptionsOf(options_, endpoint_))
                                   : Service(engine, ServiceOptionsOf(options_, endpoint_))),
        connections_(&service_, options_.limits, &slow_work_, &waiting_work_),
        acceptor_(accept_loop_),
        accept_timer_(accept_loop_),
        poll_timer_(accept_loop_),
        drain_timer_(accept_loop_) {
    for (int i = 0; i < options_.io_threads; ++i) {
      loops_.push_back(std::make_unique<net::io_context>(/*concurrency_hint=*/1));
    }
  }

  ~HttpServerImpl() override {
    service_.pairs().Stop();  // then nothing waits for a pair and uses the pools
    StopAll();
    slow_work_.stop();
    waiting_work_.stop();
    for (std::thread& worker : workers_) worker.join();
    // The engine's callbacks use members that are about to be destroyed.
    while (!service_.pairs().AwaitEmpty(kLongRound)) {
      Log(LogLevel::kWarning, absl::StrCat("stopping sequences=", service_.pairs().num_inside()));
      StopAll();
    }
    accept_loop_.stop();
    for (const auto& loop : loops_) loop->stop();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Listen();

  int port() const override { return port_; }
  std::string address() const override {
    const bool is_v6 = options_.host.find(':') != std::string::npos;
    return is_v6 ? absl::StrCat("[", options_.host, "]:", port_)
                 : absl::StrCat(options_.host, ":", port_);
  }

  void Drain() override { End(options_.drain_timeout, ServerIsStopping()); }
  void StopNow(const absl::Status& why) override { End(absl::ZeroDuration(), why); }
  void AwaitEnd() override { ended_.WaitForNotification(); }
  Service& service() override { return service_; }

 private:
  template <typename Begin>
  static void Run(net::io_context* loop, Begin begin);
  void StopAll() {
    while (!Attempt("stopping", [this] { connections_.StopAll(); })) {
      std::this_thread::sleep_for(kPause);
    }
  }
  void Resume();
  void Accept();
  void AcceptOne();
  void PollLater();
  void Add(tcp::socket socket);
  void End(absl::Duration timeout, const absl::Status& why);
  void DrainStep();
  void StopAccepting();

  const ServerOptions options_;
  const tcp::endpoint endpoint_;
  Service service_;
  ConnectionSet connections_;
  // Declared after everything that their handlers use. Each loop is run by one thread, and a
  // connection stays with its loop, so no strands are needed.
  std::vector<std::unique_ptr<net::io_context>> loops_;
  net::io_context accept_loop_{/*concurrency_hint=*/1};
  // Not thread pools of Asio's, which end the program if work throws.
  net::io_context slow_work_;
  net::io_context waiting_work_;
  tcp::acceptor acceptor_;
  net::steady_timer accept_timer_;
  net::steady_timer poll_timer_;
  net::steady_timer drain_timer_;
  int port_ = 0;
  // Used only by the accepting thread.
  uint64_t accept_turn_ = 0;  // number of the latest wait; only that one accepts
  bool is_draining_ = false;
  bool ignores_new_clients_ = false;
  Instant deadline_ = Instant::InfiniteFuture();
  absl::Status why_;  // the error of work that runs at the deadline
  absl::Notification ended_;
  std::vector<std::thread> workers_;  // of the pools
  std::vector<std::thread> threads_;  // of the loops
};

absl::Status HttpServerImpl::Listen() {
  // A loop opens descriptors of its own with its first socket. Later there may be none left.
  for (const auto& loop : loops_) tcp::socket first(*loop);
  beast::error_code error;
  acceptor_.open(endpoint_.protocol(), error);
  if (error) return CannotListen(options_, error);
  acceptor_.set_option(net::socket_base::reuse_address(true), error);
  // Without this option, accept() waits for the next client if one left before it was accepted.
  acceptor_.set_option(net::socket_base::enable_connection_aborted(true), error);
  acceptor_.bind(endpoint_, error);
  if (error) return CannotListen(options_, error);
  acceptor_.listen(net::socket_base::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) return CannotListen(options_, error);
  port_ = acceptor_.local_endpoint(error).port();
  if (error) return CannotListen(options_, error);
  for (int i = 0; i < kSlowThreads + kWaitingThreads; ++i) {
    net::io_context& pool = i < kSlowThreads ? slow_work_ : waiting_work_;
    workers_.emplace_back([&pool] { Run(&pool, [] {}); });
  }
  for (const auto& loop : loops_) {
    threads_.emplace_back([&loop = *loop] { Run(&loop, [] {}); });
  }
  threads_.emplace_back([this] {
    Run(&accept_loop_, [this] {
      PollLater();
      Resume();
    });
  });
  if (!endpoint_.address().is_loopback() && options_.service.api_key.empty()) {
    Log(LogLevel::kWarning,
        absl::StrCat("open host=", options_.host,
                     " why=\"other machines can connect without a key; --api-key-file "
                     "sets one\""));
  }
  return absl::OkStatus();
}

// An exception in a handler ends that handler, not the server. The loop is started again.
template <typename Begin>
void HttpServerImpl::Run(net::io_context* loop, Begin begin) {
  const auto keep_running = net::make_work_guard(*loop);
  const auto run = [&] {
    begin();
    loop->run();
  };
  for (;;) {
    if (Attempt("handler", run)) return;
    std::this_thread::sleep_for(kPause);
  }
}

void HttpServerImpl::Resume() {
  // The exception may have interrupted AcceptOne.
  beast::error_code error;
  acceptor_.cancel(error);
  Accept();
  if (is_draining_) DrainStep();
}

// Waits before it accepts: accept() reports a lack of descriptors even if no connection waits, and
// then an idle connection would be closed for nothing.
void HttpServerImpl::Accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_wait(tcp::acceptor::wait_read,
                       [this, turn = ++accept_turn_](beast::error_code error) {
                         if (!error && turn == accept_turn_ && acceptor_.is_open()) AcceptOne();
                       });
}

void HttpServerImpl::AcceptOne() {
  tcp::socket socket(*loops_[accept_turn_ % loops_.size()]);
  beast::error_code error;
  acceptor_.accept(socket, error);
  if (!error) Add(std::move(socket));
  if (!error || error == net::error::would_block) return Accept();
  // Out of file descriptors, or the client left before it was accepted.
  Log(LogLevel::kWarning, absl::StrCat("accept failed: ", error.message()));
  connections_.MakeRoom();
  accept_timer_.expires_after(kPause);
  accept_timer_.async_wait([this](beast::error_code) { Resume(); });
}

void HttpServerImpl::PollLater() {
  poll_timer_.expires_after(kPollTime);
  poll_timer_.async_wait([this](beast::error_code error) {
    if (error) return;
    connections_.PollAll();
    PollLater();
  });
}

void HttpServerImpl::Add(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), &connections_);
  connections_.Add(connection) ? connection->Start() : connection->Refuse();
}

// Starts a drain, or brings the deadline of one forward.
void HttpServerImpl::End(absl::Duration timeout, const absl::Status& why) {
  service_.pairs().Close(why);
  net::post(accept_loop_, [this, timeout, why] {
    const Instant deadline = Instant::Now() + timeout;
    if (deadline < deadline_) {
      deadline_ = deadline;
      why_ = why;
    }
    if (!std::exchange(is_draining_, true)) DrainStep();
  });
}

// Ends the drain in two phases. While requests run, new connections are accepted, so that their
// requests are refused with 503. After that, and after the deadline, connections are ended. Clients
// that always send a request more delay the second phase until the deadline.
void HttpServerImpl::DrainStep() {
  const bool has_sequences = service_.pairs().num_inside() > 0;
  const bool is_late = Instant::Now() >= deadline_;
  if (!has_sequences && !acceptor_.is_open() && connections_.size() == 0) {
    if (!ended_.HasBeenNotified()) ended_.Notify();
    return;
  }
  if (!has_sequences && (is_late || connections_.num_exchanges() == 0)) StopAccepting();
  if (is_late || !acceptor_.is_open()) {
    connections_.EndAll(why_, /*closes_idle=*/!acceptor_.is_open());
  }
  drain_timer_.expires_after(kDrainStep);
  drain_timer_.async_wait([this](beast::error_code error) {
    if (!error) DrainStep();
  });
}

// Clients that the system has already accepted expect an answer. The first call stops it from
// accepting more, and the second, a step later, takes those whose handshakes ended meanwhile.
void HttpServerImpl::StopAccepting() {
  if (!acceptor_.is_open()) return;
  if (!std::exchange(ignores_new_clients_, true)) {
    return IgnoreNewClients(acceptor_.native_handle());
  }
  beast::error_code error;
  while (!error) {
    tcp::socket socket(*loops_[++accept_turn_ % loops_.size()]);
    acceptor_.accept(socket, error);
    if (!error) Add(std::move(socket));
  }
  acceptor_.close(error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Engine* engine,
                                                              ServerOptions options) {
  RETURN_IF_ERROR(options.service.sites.Validate());
  ASSIGN_OR_RETURN(tcp::endpoint endpoint, EndpointOf(options));
  auto server = std::make_unique<HttpServerImpl>(engine, std::move(options), std::move(endpoint));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(ServerOptions options) {
  return Start(nullptr, std::move(options));
}

}  // namespace tandem
