#ifndef TANDEM_SERVER_HTTP_CONNECTION_H_
#define TANDEM_SERVER_HTTP_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/net/beast.h"
#include "server/api/served_request.h"
#include "server/api/service.h"
#include "server/http/connection_set.h"
#include "server/http_message.h"

namespace tandem {

// One client connection: reads a request, answers it, and repeats. Everything runs on the thread of
// its socket. At any time it reads, writes or waits for a generation; while it waits, it watches
// whether the client is still connected. A library exception ends the exchange, with an error
// answer if no answer has begun.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(net::ip::tcp::socket socket, ConnectionSet* set);
  ~Connection();

  // These may be called from any thread.
  void Start();
  void Refuse();  // answers 503 without reading, because there are too many connections
  void Stop();    // closes the connection and cancels its generation
  // Closes the connection, unless a request or an answer may be on its way.
  void CloseIfSilent();
  // When memory is short, the end of a read, a write or a wait may be lost. Then this goes on if it
  // can, or closes the connection a second after its time. Call about once a second.
  void Poll();
  // Ends what the connection does. Call repeatedly until the connection has closed:
  //   a generation fails with `why`
  //   an exchange that does not end soon is given up, because its client does not read or send
  //   without an exchange, `closes_idle` closes the connection unless a request may be on its way
  void End(const absl::Status& why, bool closes_idle);

 private:
  using Parser = http::request_parser<http::string_body>;
  using Handler = void (Connection::*)(beast::error_code);
  // The maximum of buffered bytes that the parser cannot consume yet, such as an unfinished chunk
  // line or trailer.
  static constexpr size_t kMaxBuffered = 128 << 10;
  static constexpr int kClientGone = 499;  // logged in place of a status

  // Wraps a handler so that it keeps the connection alive.
  template <typename Work>
  auto Held(Work work) {
    return [self = shared_from_this(), work = std::move(work)](auto... results) mutable {
      if (!Attempt("handler", [&] { work(results...); })) self->GiveUp();
    };
  }
  auto Then(Handler handler) {
    return Held([this, handler](beast::error_code error, size_t = 0) { (this->*handler)(error); });
  }

  void ReadHead();
  void OnHead(beast::error_code error);
  void TakeHead();
  // Returns an error in the form of the request's endpoint.
  HttpResponse ErrorOf(const absl::Status& status) const {
    return ErrorResponse(status, Service::ErrorFormOf(request_));
  }
  std::optional<HttpResponse> RefusalOfHead();
  void ReadBody();
  void ParseBody();
  void OnReadFailure(beast::error_code error);
  void Dispatch();
  using MaybeReply = std::optional<Service::Reply>;  // without a value if the service threw
  MaybeReply Handle(MaybePair pair);
  // A reply that another thread makes. That thread cancels the timer, which allocates nothing.
  struct Awaited {
    explicit Awaited(const net::any_io_executor& loop) : timer(loop) {}
    void Tell() {
      if (!is_there.exchange(true)) timer.cancel();
    }
    net::steady_timer timer;
    MaybeReply reply;
    std::atomic<bool> is_there = false;
  };
  class Waiter;
  void OnAwaited(const std::shared_ptr<Awaited>& awaited);
  void OnReply(MaybeReply reply);

  // Answers are written in parts, so that the write timeout applies to each part, not to the whole.
  void Respond(HttpResponse response, bool may_go_on);
  void WriteResponse();
  void OnResponsePart(beast::error_code error);
  void OnResponded(beast::error_code error);

  void WatchClient();
  void OnReadable(beast::error_code error, uint64_t exchange);
  void TakeNews();
  // Sends a comment at intervals until tokens arrive, for clients that give up on a silent
  // connection.
  void CommentLater();
  void SendComment();
  void BeginStream();
  void Stream(const std::string& events);
  void WriteEvents();
  void OnEventsWritten(beast::error_code error);

  bool BeginExchange();
  void EndExchange();
  bool IsSilent();
  // The reads and writes from here on end within `time`, or with an error.
  void ExpireAfter(absl::Duration time);
  void ExpireNever();
  void DropGeneration();
  void Linger();
  void OnLingered(beast::error_code error);
  void GiveUp();
  void Close();
  void Log(int status);
  void LogExchange(int status);

  ConnectionSet* set_;
  beast::tcp_stream stream_;
  net::steady_timer comment_timer_;
  Instant overdue_at_ = Instant::InfiniteFuture();  // when the stream has certainly expired
  std::string client_;                              // its address
  beast::flat_buffer buffer_{kMaxBuffered};
  std::optional<Parser> parser_;
  uint64_t body_wire_bytes_ = 0;  // read of the body so far, including its framing

  // The current request.
  HttpRequest request_;
  ByteBudget::Share large_body_;  // for its body, or for the answer made from the body
  uint64_t exchange_ = 0;         // number of the current exchange
  bool in_exchange_ = false;
  bool is_lingering_ = false;
  Instant idle_since_ = Instant::Now();
  Instant given_up_at_ = Instant::InfiniteFuture();  // when End gives the exchange up
  bool keep_alive_ = false;
  unsigned http_version_ = 11;
  std::shared_ptr<Awaited> awaited_;
  std::shared_ptr<ServedRequest> generation_;

  // The answer.
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::string events_;         // being written
  size_t written_events_ = 0;  // bytes of `events_` already written
  uint64_t sent_bytes_ = 0;
  bool is_streaming_ = false;
  bool is_writing_ = false;
  bool has_news_ = false;     // arrived during a write; irrelevant after the end of the answer
  bool is_last_ = false;      // the current write ends the answer
  bool has_tokens_ = false;   // events were taken, so comments are not needed
  std::string error_events_;  // to end a stream that has begun before its generation
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_CONNECTION_H_
