// The endings of exchanges and connections, and the log of requests.
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/log.h"
#include "server/http/connection.h"

namespace tandem {
namespace {

constexpr size_t kMaxLoggedPath = 200;
// How long the rest of an answered request is read, so that its client's system keeps the answer.
constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr size_t kMaxLingeredBytes = 1 << 20;
// How long an exchange may continue while the server ends its connections.
constexpr absl::Duration kEndTime = absl::Seconds(3);
// The server may close a connection whose client is silent for longer before a request.
constexpr absl::Duration kRequestTime = absl::Milliseconds(500);
// How long after its time a read or a write may end whose end was not lost.
constexpr absl::Duration kOverdue = absl::Seconds(1);

}  // namespace

void Connection::Stop() {
  net::post(stream_.get_executor(), Held([this] { Close(); }));
}

void Connection::CloseIfSilent() {
  net::post(stream_.get_executor(), Held([this] {
              if (IsSilent()) Close();
            }));
}

void Connection::End(const absl::Status& why, bool closes_idle) {
  net::post(stream_.get_executor(), Held([this, why, closes_idle] {
              if (closes_idle && IsSilent()) return Close();
              if (!in_exchange_) return;
              given_up_at_ = std::min(given_up_at_, Instant::Now() + kEndTime);
              if (Instant::Now() >= given_up_at_) return Close();
              if (generation_ != nullptr) generation_->Fail(why);
            }));
}

void Connection::Poll() {
  net::post(stream_.get_executor(), Held([this] {
              if (Instant::Now() >= overdue_at_) return Close();
              const std::shared_ptr<Awaited> awaited = awaited_;
              if (awaited != nullptr && awaited->is_there) return OnAwaited(awaited);
              if (generation_ != nullptr) TakeNews();
            }));
}

void Connection::ExpireAfter(absl::Duration time) {
  stream_.expires_after(absl::ToChronoNanoseconds(time));
  overdue_at_ = Instant::Now() + time + kOverdue;
}

void Connection::ExpireNever() {
  stream_.expires_never();
  overdue_at_ = Instant::InfiniteFuture();
}

// Returns false if the connection was closed to make room, and must not begin an exchange.
bool Connection::BeginExchange() {
  if (std::exchange(in_exchange_, true)) return true;
  ++exchange_;
  return set_->BeginExchange(this);
}

void Connection::EndExchange() {
  is_streaming_ = false;
  is_writing_ = false;
  is_last_ = false;
  has_news_ = false;
  has_tokens_ = false;
  error_events_.clear();
  awaited_ = nullptr;
  sent_bytes_ = 0;
  ++exchange_;
  given_up_at_ = Instant::InfiniteFuture();
  if (std::exchange(in_exchange_, false)) {
    idle_since_ = Instant::Now();
    set_->EndExchange(this);
  }
  DropGeneration();
}

// Whether no request has come or may be on its way, and no answer either.
bool Connection::IsSilent() {
  char byte = 0;
  return !in_exchange_ && !is_lingering_ && Instant::Now() >= idle_since_ + kRequestTime &&
         recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

// Cancels the generation if it still runs, and stops watching the client.
void Connection::DropGeneration() {
  comment_timer_.cancel();  // a stream that waits for its pair has no generation yet
  const std::shared_ptr<ServedRequest> generation = std::exchange(generation_, nullptr);
  if (generation == nullptr) return;
  beast::error_code error;
  stream_.socket().cancel(error);
  generation->Cancel();
}

void Connection::Linger() {
  beast::error_code error;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
  if (error) return Close();
  is_lingering_ = true;
  ExpireAfter(kLingerTime);
  OnLingered({});
}

void Connection::OnLingered(beast::error_code error) {
  sent_bytes_ += buffer_.size();
  buffer_.consume(buffer_.size());
  if (error || sent_bytes_ > kMaxLingeredBytes) return Close();
  stream_.async_read_some(buffer_.prepare(16 << 10),
                          Held([this](beast::error_code failure, size_t size) {
                            buffer_.commit(size);
                            OnLingered(failure);
                          }));
}

// Ends an exchange after an exception: with an answer, if none has begun and memory is left.
void Connection::GiveUp() {
  const bool may_answer = in_exchange_ && !is_writing_ && !is_streaming_;
  const auto answer = [this] {
    Respond(ErrorOf(absl::UnknownError("the server failed; see its log")), /*may_go_on=*/false);
  };
  if (!may_answer || !Attempt("answer", answer)) Close();
}

// An exchange that has not ended counts as given up by the client.
void Connection::Close() {
  stream_.close();
  overdue_at_ = Instant::InfiniteFuture();
  is_lingering_ = false;
  if (in_exchange_) Log(kClientGone);
  EndExchange();
}

void Connection::Log(int status) {
  Attempt("log", [&] { LogExchange(status); });
}

void Connection::LogExchange(int status) {
  const std::string path =
      absl::CHexEscape(absl::string_view(request_.target).substr(0, kMaxLoggedPath));
  std::string line = absl::StrCat(
      "request client=", client_, " id=", request_.id.empty() ? "none" : request_.id,
      " method=", absl::CHexEscape(request_.method.substr(0, 16)), " path=", path,
      " status=", status, " ms=", absl::ToInt64Milliseconds(Instant::Now() - request_.received),
      " bytes=", sent_bytes_);
  if (generation_ != nullptr) {
    const ServedRequest::Summary summary = generation_->summary();
    absl::StrAppend(&line, " stream=", generation_->is_stream() ? "true" : "false",
                    " prompt_tokens=", summary.prompt_tokens,
                    " completion_tokens=", summary.completion_tokens,
                    " finish=", summary.finish_reason.empty() ? "none" : summary.finish_reason);
  }
  tandem::Log(LogLevel::kInfo, line);
  set_->service().CountAnswer(request_, status);
}

}  // namespace tandem
