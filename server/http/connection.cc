#include "server/http/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/net/address.h"
#include "base/process_limits.h"
#include "server/api/api_error.h"
#include "server/http/request_target.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr char kServerName[] = "tandem";
constexpr size_t kReadSize = 64 << 10;
// Tokenizing a larger body may take longer (1 ms and more) than streams should wait.
constexpr size_t kLargeBody = 64 << 10;
// Memory is returned to the system after a larger body, which may need a hundred times its size.
constexpr size_t kHugeBody = 1 << 20;

std::string Text(beast::string_view text) { return {text.data(), text.size()}; }

HttpResponse NotHttp(absl::string_view why) {
  return ErrorResponse(absl::InvalidArgumentError(absl::StrCat("the request is not HTTP: ", why)));
}

bool IsBadRequest(beast::error_code error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

Connection::Connection(net::ip::tcp::socket socket, ConnectionSet* set)
    : set_(set), stream_(std::move(socket)), comment_timer_(stream_.get_executor()) {
  beast::error_code error;
  const auto endpoint = stream_.socket().remote_endpoint(error);
  client_ = error ? "unknown" : endpoint.address().to_string();
  stream_.socket().set_option(net::ip::tcp::no_delay(true), error);
}

Connection::~Connection() {
  set_->Remove(this);
  if (generation_ != nullptr) generation_->Cancel();
}

void Connection::Start() {
  net::dispatch(stream_.get_executor(), Held([this] { ReadHead(); }));
}

void Connection::Refuse() {
  net::dispatch(stream_.get_executor(), Held([this] {
                  request_.received = Instant::Now();
                  Respond(ErrorResponse(set_->TooManyConnections()), /*may_go_on=*/false);
                }));
}

// ---- Reading ----

void Connection::ReadHead() {
  // Frees the memory of the last exchange.
  request_ = {};
  response_ = {};
  large_body_ = {};
  parser_.emplace();
  parser_->header_limit(set_->limits().max_header_bytes);
  // AnswerToHead refuses a length that is too large, because it knows the path.
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  ExpireAfter(set_->limits().read_timeout);
  http::async_read_header(stream_, buffer_, *parser_, Then(&Connection::OnHead));
}

void Connection::OnHead(beast::error_code error) {
  request_.received = Instant::Now();
  if (error) return OnReadFailure(error);
  TakeHead();
  if (!BeginExchange()) return Close();
  if (auto refusal = RefusalOfHead()) return Respond(*std::move(refusal), /*may_go_on=*/false);
  if (set_->is_crowded() && !Service::IsProbe(request_)) {
    return Respond(ErrorResponse(set_->TooManyConnections()), /*may_go_on=*/false);
  }
  std::optional<uint64_t> body_size;
  if (const auto length = parser_->content_length()) body_size = *length;
  if (auto answer = set_->service().AnswerToHead(request_, body_size)) {
    const bool has_body = parser_->chunked() || body_size.value_or(0) > 0;
    return Respond(*std::move(answer), /*may_go_on=*/!has_body);
  }
  const bool is_invited =
      absl::EqualsIgnoreCase(Text(parser_->get()[http::field::expect]), "100-continue");
  if (!is_invited || http_version_ < 11 || parser_->is_done()) return ReadBody();
  static const std::string& go_on = *new std::string("HTTP/1.1 100 Continue\r\n\r\n");
  net::async_write(stream_, net::buffer(go_on), Held([this](beast::error_code failure, size_t) {
                     failure ? Close() : ReadBody();
                   }));
}

void Connection::TakeHead() {
  const auto& head = parser_->get();
  http_version_ = head.version();
  request_.method = Text(head.method_string());
  request_.target = Text(head.target());
  RequestTarget target = ParseTarget(request_.target);
  request_.path = std::move(target.path);
  request_.host = target.host.has_value() ? *target.host : Text(head[http::field::host]);
  request_.origin = Text(head[http::field::origin]);
  request_.fetch_site = Text(head["Sec-Fetch-Site"]);
  request_.requested_method = Text(head[http::field::access_control_request_method]);
  request_.requested_headers = Text(head[http::field::access_control_request_headers]);
  request_.authorization = Text(head[http::field::authorization]);
  request_.api_key = Text(head["x-api-key"]);
  request_.content_type = Text(head[http::field::content_type]);
  request_.client = ClientNetwork(client_);
  request_.id = set_->service().RequestIdOf(Text(head["X-Request-Id"]));
  request_.route = Service::RouteOf(request_);
}

// Refuses heads that a proxy on the way may read differently: where the request ends, or which host
// it is for. The parser takes "Transfer-Encoding: gzip" alone for a request without a body, so that
// its body would become the next request.
std::optional<HttpResponse> Connection::RefusalOfHead() {
  const auto& head = parser_->get();
  if (head.count(http::field::transfer_encoding) > 0) {
    if (!absl::EqualsIgnoreCase(Text(head[http::field::transfer_encoding]), "chunked")) {
      return NotHttp("a Transfer-Encoding other than chunked");
    }
    if (http_version_ < 11) return NotHttp("a Transfer-Encoding in HTTP/1.0");
  }
  const size_t num_hosts = head.count(http::field::host);
  if (num_hosts > 1 || (num_hosts == 0 && http_version_ >= 11)) {
    return NotHttp(absl::StrCat(num_hosts, " Host fields, allowed: 1"));
  }
  return std::nullopt;
}

void Connection::ReadBody() {
  ExpireAfter(set_->limits().read_timeout);
  body_wire_bytes_ = 0;
  parser_->body_limit(static_cast<uint64_t>(set_->service().options().max_body_bytes));
  parser_->eager(true);
  ParseBody();
}

// The framing of a body (chunk sizes, extensions and trailers) may use a little more than the
// maximum body size in addition to the body. The parser does not count it, and neither does a read
// that ends when the parser is satisfied. Therefore the parser gets the bytes of one read at a
// time.
void Connection::ParseBody() {
  beast::error_code error;
  if (!parser_->is_done() && buffer_.size() > 0) {
    const size_t size = parser_->put(buffer_.data(), error);
    buffer_.consume(size);
    body_wire_bytes_ += size;
    if (error && error != http::error::need_more) return OnReadFailure(error);
  }
  const auto limit = static_cast<uint64_t>(set_->service().options().max_body_bytes);
  if (body_wire_bytes_ > 2 * limit + kMaxBuffered) return OnReadFailure(http::error::body_limit);
  if (parser_->is_done()) return Dispatch();
  const size_t room = beast::read_size(buffer_, kReadSize);
  if (room == 0) return OnReadFailure(http::error::buffer_overflow);
  stream_.async_read_some(buffer_.prepare(room),
                          Held([this](beast::error_code failure, size_t size) {
                            buffer_.commit(size);
                            failure ? OnReadFailure(failure) : ParseBody();
                          }));
}

// Answers with the error in the request, if the client is still connected.
void Connection::OnReadFailure(beast::error_code error) {
  if (error == http::error::body_limit) {
    return Respond(ErrorOf(set_->service().BodyTooLarge()), /*may_go_on=*/false);
  }
  if (error == http::error::buffer_overflow && parser_->is_header_done()) {
    return Respond(NotHttp("the framing of a chunk is too long"), /*may_go_on=*/false);
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Respond(ErrorResponse(WithCode(
                       absl::InvalidArgumentError(absl::StrCat(
                           "the head is larger than ", set_->limits().max_header_bytes, " bytes")),
                       "head_too_large", 431)),
                   /*may_go_on=*/false);
  }
  if (IsBadRequest(error)) return Respond(NotHttp(error.message()), /*may_go_on=*/false);
  Close();
}

class Connection::Waiter final : public PairWaiter {
 public:
  Waiter(Connection* connection, std::shared_ptr<Awaited> awaited)
      : connection_(connection->shared_from_this()),
        awaited_(std::move(awaited)),
        exchange_(connection->exchange_),
        is_huge_(connection->request_.body.size() > kHugeBody) {}
  ~Waiter() override { awaited_->Tell(); }

  void Wait() override {
    net::post(connection_->stream_.get_executor(),
              connection_->Held([connection = connection_.get(), exchange = exchange_] {
                if (connection->exchange_ == exchange) connection->CommentLater();
              }));
  }
  void Handle(MaybePair pair) override {
    awaited_->reply = connection_->Handle(std::move(pair));
    awaited_->Tell();
    if (is_huge_) ReturnFreeMemory();
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Awaited> awaited_;
  const uint64_t exchange_;
  const bool is_huge_;
};

void Connection::Dispatch() {
  request_.body = std::move(parser_->get().body());
  keep_alive_ = parser_->get().keep_alive();
  ExpireNever();
  const bool is_large = request_.body.size() > kLargeBody;
  if (is_large) {
    auto share = set_->service().large_bodies().Take(static_cast<int64_t>(request_.body.size()));
    if (!share.ok()) return Respond(ErrorOf(share.status()), /*may_go_on=*/true);
    large_body_ = *std::move(share);
  }
  net::io_context* pool = nullptr;
  if (is_large) {
    pool = set_->slow_work();
  } else if (set_->service().MayBlock(request_)) {
    pool = set_->waiting_work();
  }
  if (pool == nullptr) return OnReply(Handle(std::nullopt));
  const auto awaited = std::make_shared<Awaited>(stream_.get_executor());
  awaited->timer.expires_at(net::steady_timer::time_point::max());
  awaited->timer.async_wait(Held([this, awaited](beast::error_code) { OnAwaited(awaited); }));
  awaited_ = awaited;
  // Nothing else uses the request in the meantime: no read or write is in progress.
  const auto find = [&] {
    set_->FindPair(pool, request_, std::make_shared<Waiter>(this, awaited));
  };
  if (!Attempt("request", find)) awaited->Tell();
}

// Frees the body as soon as it has been parsed: a generation does not need it.
Connection::MaybeReply Connection::Handle(MaybePair pair) {
  MaybeReply reply;
  Attempt("request", [&] {
    reply = pair.has_value() ? set_->service().Handle(request_, *std::move(pair))
                             : set_->service().Handle(request_);
  });
  std::string().swap(request_.body);
  return reply;
}

void Connection::OnAwaited(const std::shared_ptr<Awaited>& awaited) {
  MaybeReply reply = std::exchange(awaited->reply, std::nullopt);
  if (awaited_ == awaited) {
    awaited_ = nullptr;
    return OnReply(std::move(reply));
  }
  // The connection was closed in the meantime, or Poll has taken the reply.
  if (!reply.has_value()) return;
  auto* late = std::get_if<std::shared_ptr<ServedRequest>>(&*reply);
  if (late != nullptr) (*late)->Cancel();
}

void Connection::OnReply(MaybeReply reply) {
  if (!reply.has_value()) return GiveUp();
  if (auto* response = std::get_if<HttpResponse>(&*reply)) {
    if (is_streaming_) {  // comments were sent
      error_events_ = ErrorEvents(*response, Service::ErrorFormOf(request_));
      return TakeNews();
    }
    const bool may_go_on = response->status != 500;
    return Respond(std::move(*response), may_go_on);
  }
  large_body_ = {};
  generation_ = std::get<std::shared_ptr<ServedRequest>>(*std::move(reply));
  if (is_streaming_) generation_->OnHeadSent();
  WatchClient();
  generation_->Listen([self = shared_from_this(), exchange = exchange_] {
    Attempt("news", [&] {
      net::post(self->stream_.get_executor(), self->Held([connection = self.get(), exchange] {
        if (connection->exchange_ == exchange) connection->TakeNews();
      }));
    });
  });
  if (generation_ != nullptr && generation_->is_stream()) CommentLater();
}

// ---- Whole answers ----

void Connection::Respond(HttpResponse answer, bool may_go_on) {
  BeginExchange();  // in case no request was read
  keep_alive_ = may_go_on && parser_.has_value() && parser_->is_header_done() &&
                parser_->get().keep_alive() && !set_->service().pairs().is_closed();
  response_ = {};
  response_.result(static_cast<unsigned>(answer.status));
  response_.version(http_version_);
  response_.set(http::field::server, kServerName);
  if (!answer.content_type.empty()) response_.set(http::field::content_type, answer.content_type);
  for (const auto& [name, value] : answer.headers) response_.set(name, value);
  if (generation_ != nullptr) {
    for (const auto& [name, value] : generation_->headers()) response_.set(name, value);
  }
  for (const auto& [name, value] : set_->service().Headers(request_)) response_.set(name, value);
  response_.keep_alive(keep_alive_);
  response_.body() = std::move(answer.body);
  response_.prepare_payload();
  if (answer.status == 204) response_.erase(http::field::content_length);  // 204 forbids it
  sent_bytes_ = response_.body().size();
  serializer_.emplace(response_);
  serializer_->split(request_.method == "HEAD");
  // A generation that has failed gets only this answer, whatever it sends afterwards.
  is_writing_ = true;
  is_last_ = true;
  WriteResponse();
}

void Connection::WriteResponse() {
  ExpireAfter(set_->limits().write_timeout);
  http::async_write_some(stream_, *serializer_, Then(&Connection::OnResponsePart));
}

void Connection::OnResponsePart(beast::error_code error) {
  const bool is_whole =
      request_.method == "HEAD" ? serializer_->is_header_done() : serializer_->is_done();
  if (error || is_whole) return OnResponded(error);
  WriteResponse();
}

void Connection::OnResponded(beast::error_code error) {
  if (!in_exchange_) return;  // closed meanwhile
  Log(error ? kClientGone : static_cast<int>(response_.result_int()));
  std::string().swap(response_.body());  // an idle connection keeps no answer
  const bool is_read = parser_.has_value() && parser_->is_done();
  const bool goes_on = !error && keep_alive_;
  EndExchange();
  if (goes_on) return ReadHead();
  if (error || is_read) return Close();
  Linger();
}

// ---- Generations ----

// A client that closes its sending side counts as gone. It cannot be told from one that only ends
// its request that way, and no such client is known.
void Connection::WatchClient() {
  stream_.socket().async_wait(
      net::ip::tcp::socket::wait_read,
      Held([this, exchange = exchange_](beast::error_code error) { OnReadable(error, exchange); }));
}

void Connection::OnReadable(beast::error_code error, uint64_t exchange) {
  if (exchange != exchange_ || generation_ == nullptr) return;
  // The socket may be readable because of bytes that were read in the meantime.
  char byte = 0;
  const ssize_t size =
      error ? 0 : recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return WatchClient();
  // The next request came early and waits. From now on only a failed write shows that the client
  // has gone.
  if (size > 0) return;
  keep_alive_ = false;
  // The client may have read the whole answer before this thread learnt that it was written, or may
  // still be reading. The write decides whether the answer arrives.
  if (is_writing_ && is_last_) return;
  Close();
}

void Connection::TakeNews() {
  if (is_writing_) {
    has_news_ = true;
    return;
  }
  if (!error_events_.empty()) {
    is_last_ = true;
    return Stream(std::exchange(error_events_, {}));
  }
  if (generation_ == nullptr) return;
  ServedRequest::Update update = generation_->Take();
  if (update.response.has_value()) return Respond(*std::move(update.response), /*may_go_on=*/true);
  if (update.events.empty() && !update.is_over) return;
  is_last_ = update.is_over;
  has_tokens_ = true;
  Stream(update.events);
}

void Connection::CommentLater() {
  comment_timer_.expires_after(absl::ToChronoNanoseconds(set_->limits().comment_interval));
  comment_timer_.async_wait(Held([this, exchange = exchange_](beast::error_code error) {
    if (error || exchange != exchange_ || is_last_ || has_tokens_) return;
    if (!is_writing_) SendComment();
    CommentLater();
  }));
}

void Connection::SendComment() {
  if (generation_ == nullptr) return Stream(": loading\n\n");
  generation_->OnHeadSent();
  Stream(": queued\n\n");
}

void Connection::BeginStream() {
  is_streaming_ = true;
  keep_alive_ = keep_alive_ && http_version_ >= 11 && !set_->service().pairs().is_closed();
  http::response<http::empty_body> head(http::status::ok, http_version_);
  head.set(http::field::server, kServerName);
  head.set(http::field::content_type, "text/event-stream; charset=utf-8");
  head.set(http::field::cache_control, "no-cache");
  head.set("X-Accel-Buffering", "no");
  for (const auto& [name, value] : set_->service().Headers(request_)) head.set(name, value);
  if (generation_ != nullptr) {
    for (const auto& [name, value] : generation_->headers()) head.set(name, value);
  }
  head.keep_alive(keep_alive_);
  head.chunked(http_version_ >= 11);
  events_ = absl::StrCat("HTTP/1.", http_version_ % 10, " 200 OK\r\n");
  for (const auto& field : head) {
    absl::StrAppend(&events_, Text(field.name_string()), ": ", Text(field.value()), "\r\n");
  }
  absl::StrAppend(&events_, "\r\n");
}

// Writes events, after the head if they are the first. In HTTP/1.1 they are framed as a chunk.
void Connection::Stream(const std::string& events) {
  if (!is_streaming_) BeginStream();
  sent_bytes_ += events.size();
  if (http_version_ < 11) {
    events_ += events;
  } else {
    if (!events.empty()) {
      absl::StrAppend(&events_, absl::Hex(events.size()), "\r\n", events, "\r\n");
    }
    if (is_last_) events_ += "0\r\n\r\n";
  }
  is_writing_ = true;
  WriteEvents();
}

void Connection::WriteEvents() {
  ExpireAfter(set_->limits().write_timeout);
  stream_.async_write_some(net::buffer(events_) + written_events_,
                           Held([this](beast::error_code error, size_t size) {
                             written_events_ += size;
                             const bool is_all = written_events_ == events_.size();
                             error || is_all ? OnEventsWritten(error) : WriteEvents();
                           }));
}

void Connection::OnEventsWritten(beast::error_code error) {
  is_writing_ = false;
  events_.clear();
  written_events_ = 0;
  if (!in_exchange_) return;  // closed meanwhile
  if (error) return Close();
  if (is_last_) {
    Log(200);
    const bool goes_on = keep_alive_;
    EndExchange();
    return goes_on ? ReadHead() : Close();
  }
  ExpireNever();
  if (std::exchange(has_news_, false)) TakeNews();
}

}  // namespace tandem
