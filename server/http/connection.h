#ifndef TANDEM_SERVER_HTTP_CONNECTION_H_
#define TANDEM_SERVER_HTTP_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/api/served_request.h"
#include "server/api/service.h"
#include "server/asio.h"
#include "server/http/connection_set.h"
#include "server/http_message.h"

namespace tandem {

// One client: reads a request, answers it, and so on. Everything runs on the thread of its socket;
// at any time it reads or writes or waits for a generation, and while it waits it looks whether the
// client is still there. What a library throws meanwhile ends the exchange, with an answer that
// says so where none has begun.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(net::ip::tcp::socket socket, ConnectionSet* set);
  ~Connection();

  // Each from any thread.
  void Start();
  void Refuse();  // answers 503 without reading: there are too many
  void Stop();    // closes; a generation is cancelled

 private:
  using Parser = http::request_parser<http::string_body>;
  using Handler = void (Connection::*)(beast::error_code);
  // Beyond this, what came of a request cannot be taken apart: a chunk's line without an
  // end, or trailers.
  static constexpr size_t kMaxBuffered = 128 << 10;

  // A handler that keeps this alive.
  template <typename Work>
  auto Held(Work work);
  auto Then(Handler handler);
  void ReadHead();
  void OnHead(beast::error_code error);
  void TakeHead();
  std::optional<HttpResponse> RefusalOfHead();
  void ReadBody();
  void ParseBody();
  void OnReadFailure(beast::error_code error);
  void Dispatch();
  Service::Reply Handle();
  void HandleAside(uint64_t exchange);
  void OnReply(Service::Reply reply);

  // Writes go part by part: the time that a client has is that for taking something, not all.
  void Respond(HttpResponse response, bool may_go_on);
  void WriteResponse();
  void OnResponsePart(beast::error_code error);
  void OnResponded(beast::error_code error);

  void WatchClient();
  void OnReadable(beast::error_code error, uint64_t exchange);
  void TakeNews();
  void CommentLater();
  void SendComment();
  void BeginStream();
  void Stream(const std::string& events);
  void WriteEvents();
  void OnEventsWritten(beast::error_code error);

  bool BeginExchange();
  void EndExchange();
  void DropGeneration();
  void Linger();
  void OnLingered(beast::error_code error);
  void Close();
  void Log(int status);

  ConnectionSet* set_;
  beast::tcp_stream stream_;
  net::steady_timer comment_timer_;
  std::string client_;
  beast::flat_buffer buffer_{kMaxBuffered};
  std::optional<Parser> parser_;
  uint64_t body_wire_bytes_ = 0;  // of the body so far, with what frames it

  // The request being answered.
  HttpRequest request_;
  ByteBudget::Share large_body_;  // of its body, or of the answer that is made of it
  uint64_t exchange_ = 0;         // its number here
  bool in_exchange_ = false;
  bool keep_alive_ = false;
  unsigned http_version_ = 11;
  std::shared_ptr<ServedRequest> generation_;

  // Its answer.
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::string events_;         // being written
  size_t written_events_ = 0;  // bytes of them
  uint64_t sent_bytes_ = 0;
  bool is_streaming_ = false;
  bool is_writing_ = false;
  bool has_news_ = false;    // that came while writing; of no interest once the answer is written
  bool is_last_ = false;     // what is written ends the answer
  bool has_tokens_ = false;  // events were taken, so that no comments are needed
};

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_CONNECTION_H_
