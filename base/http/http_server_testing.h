// A server of one test, whose answers the test decides.
#ifndef TANDEM_BASE_HTTP_HTTP_SERVER_TESTING_H_
#define TANDEM_BASE_HTTP_HTTP_SERVER_TESTING_H_

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/net/beast.h"
#include "boost/asio/ssl.hpp"
#include "boost/beast/ssl.hpp"

namespace tandem {

using TestRequest = http::request<http::string_body>;
using TestResponse = http::response<http::string_body>;

// Serves each connection on a thread of its own, with TLS if it has a certificate. Closes a
// connection without saying so after an answer with a field X-Close, and with a field X-Cut before
// the last byte that it has announced.
class TestHttpServer {
 public:
  using Handler = std::function<void(const TestRequest& request, TestResponse* response)>;

  explicit TestHttpServer(Handler handler, net::ssl::context* tls = nullptr)
      : handler_(std::move(handler)),
        tls_(tls),
        acceptor_(context_, {net::ip::make_address("127.0.0.1"), 0}) {
    accepting_ = std::thread([this] { Accept(); });
  }
  ~TestHttpServer() {
    is_over_ = true;
    beast::error_code ignored;
    net::ip::tcp::socket(context_).connect(acceptor_.local_endpoint(), ignored);  // wakes accept
    accepting_.join();
    {
      absl::MutexLock lock(&mutex_);
      for (auto& socket : sockets_) socket.shutdown(net::socket_base::shutdown_both, ignored);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::string Url(const char* scheme = "http") const {
    return absl::StrCat(scheme, "://127.0.0.1:", acceptor_.local_endpoint().port());
  }
  int num_connections() const { return num_connections_; }

 private:
  void Accept() {
    for (;;) {
      beast::error_code error;
      net::ip::tcp::socket socket(context_);
      acceptor_.accept(socket, error);
      if (error || is_over_) return;
      ++num_connections_;
      absl::MutexLock lock(&mutex_);
      net::ip::tcp::socket& kept = sockets_.emplace_back(std::move(socket));
      threads_.emplace_back([this, &kept] { Serve(&kept); });
    }
  }
  void Serve(net::ip::tcp::socket* socket) {
    beast::error_code error;
    if (tls_ == nullptr) {
      Exchange(socket);
    } else {
      net::ssl::stream<net::ip::tcp::socket&> stream(*socket, *tls_);
      stream.handshake(net::ssl::stream_base::server, error);
      if (!error) Exchange(&stream);
    }
    socket->shutdown(net::socket_base::shutdown_both, error);
  }
  template <typename Stream>
  void Exchange(Stream* stream) {
    beast::flat_buffer buffer;
    for (;;) {
      beast::error_code error;
      TestRequest request;
      http::read(*stream, buffer, request, error);
      if (error) return;
      TestResponse response(http::status::ok, 11);
      response.keep_alive(request.keep_alive());
      handler_(request, &response);
      response.prepare_payload();
      const bool is_cut = response.count("X-Cut") > 0;
      if (is_cut) response.content_length(response.body().size() + 1);
      http::write(*stream, response, error);
      if (error || is_cut || response.count("X-Close") > 0) return;
    }
  }

  const Handler handler_;
  net::ssl::context* const tls_;
  net::io_context context_;
  net::ip::tcp::acceptor acceptor_;
  std::atomic<bool> is_over_ = false;
  std::atomic<int> num_connections_ = 0;
  absl::Mutex mutex_;
  std::list<net::ip::tcp::socket> sockets_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> threads_;  // of connections; only accepting_ adds
  std::thread accepting_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_HTTP_HTTP_SERVER_TESTING_H_
