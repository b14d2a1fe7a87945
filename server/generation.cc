#include "server/generation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/api_error.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EventOf(const Json& json) {
  return json.is_null() ? "" : absl::StrCat("data: ", Dump(json), "\n\n");
}

constexpr char kDone[] = "data: [DONE]\n\n";

}  // namespace

Generation::Generation(const GenerationHost& host, ApiRequest request, std::string id,
                       absl::Time requested)
    : host_(host),
      request_(std::move(request)),
      requested_(requested),
      response_(&request_, host.model, std::move(id), absl::ToUnixSeconds(requested)),
      sequences_(request_.num_sequences(), Sequence(SequenceLatency(host.metrics, requested))) {}

absl::StatusOr<std::shared_ptr<Generation>> Generation::Start(const GenerationHost& host,
                                                              ApiRequest request, std::string id,
                                                              absl::Time requested) {
  const int count = request.num_sequences();
  if (absl::Status status = host.admission->Enter(count); !status.ok()) return status;
  std::shared_ptr<Generation> generation(
      new Generation(host, std::move(request), std::move(id), requested));
  if (absl::Status status = generation->Submit(); !status.ok()) return status;
  return generation;
}

// Those that were submitted before one fails are cancelled; they leave by themselves.
absl::Status Generation::Submit() {
  const int count = request_.num_sequences();
  {
    absl::MutexLock lock(&mutex_);
    num_running_ = count;
  }
  for (int i = 0; i < count; ++i) {
    const auto self = shared_from_this();
    absl::StatusOr<GenerationId> id = host_.engine->Submit(
        request_.RequestOf(i), [self, i](const Piece& piece) { return self->OnPiece(i, piece); },
        [self, i](absl::StatusOr<Completion> result) { self->OnDone(i, std::move(result)); });
    if (id.ok()) {
      sequences_[i].id = *id;
      continue;
    }
    Cancel();
    host_.admission->Leave(count - i);
    return WithFieldRenamed(id.status(), "prompt_ids", "prompt");
  }
  return absl::OkStatus();
}

// ---- On the engine's thread ----

bool Generation::OnPiece(int choice, const Piece& piece) {
  sequences_[choice].latency.OnTokens(absl::Now(), static_cast<int>(piece.token_ids.size()));
  absl::MutexLock lock(&mutex_);
  if (is_cancelled_ || !status_.ok()) return false;
  if (!request_.stream || request_.prompt_only) return true;
  queue_.push_back({.choice = choice, .piece = OwnedPiece::Of(piece)});
  queued_bytes_ += queue_.back().piece.SizeInBytes();
  if (queued_bytes_ > host_.max_unread_bytes) {
    status_ =
        WithCode(absl::UnavailableError(absl::StrCat("the client reads too slowly: more than ",
                                                     host_.max_unread_bytes, " bytes wait for it")),
                 "slow_client");
  }
  Notify();
  return status_.ok();
}

void Generation::OnDone(int choice, absl::StatusOr<Completion> result) {
  sequences_[choice].latency.OnEnd(absl::Now());
  {
    absl::MutexLock lock(&mutex_);
    if (!result.ok()) {
      status_.Update(result.status());
    } else {
      // Somebody stopped it, and it was not the client: the server ends.
      if (result->finish_reason == FinishReason::kCancelled && !is_cancelled_) {
        status_.Update(absl::UnavailableError("the server is stopping"));
      }
      sequences_[choice].completion = *std::move(result);
    }
    sequences_[choice].is_done = true;
    --num_running_;
    if (request_.stream) queue_.push_back({.choice = choice, .piece = {}, .is_end = true});
    Notify();
    // Whoever listens may not outlive the server, and the last reference to it may be this one.
    if (num_running_ == 0) on_news_ = nullptr;
  }
  host_.admission->Leave(1);
}

void Generation::Notify() {
  const bool is_of_interest = request_.stream || num_running_ == 0 || !status_.ok();
  if (!is_of_interest || has_notified_ || on_news_ == nullptr) return;
  on_news_();
  has_notified_ = true;  // unless that has thrown
}

// ---- On the connection's strand ----

void Generation::Listen(std::function<void()> on_news) {
  absl::MutexLock lock(&mutex_);
  on_news_ = std::move(on_news);
  has_notified_ = false;
  if (!queue_.empty() || num_running_ == 0) Notify();
  if (num_running_ == 0) on_news_ = nullptr;
}

Generation::News Generation::Take() {
  std::vector<Event> events;
  absl::Status status;
  News news;
  {
    absl::MutexLock lock(&mutex_);
    has_notified_ = false;
    if (!request_.stream) return TakeWhole();
    events.swap(queue_);
    queued_bytes_ = 0;
    status = status_;
    news.is_over = num_running_ == 0 || !status.ok();
  }
  if (!status.ok()) {
    CancelOthers();
    if (!has_begun_) {
      news.response = ErrorResponse(status);
      return news;
    }
  }
  if (!has_begun_) news.events = FirstEvents();
  has_begun_ = true;
  if (status.ok()) {
    news.events += EventsOf(events, news.is_over);
    if (news.is_over) news.events += LastEvents();
  } else {
    absl::StrAppend(&news.events, EventOf(ErrorJson(status)), kDone);
  }
  return news;
}

Generation::News Generation::TakeWhole() {
  News news;
  if (num_running_ > 0 && status_.ok()) return news;
  news.is_over = true;
  if (status_.ok()) {
    news.response = HttpResponse{.status = 200, .body = Dump(response_.Whole(Completions()))};
  } else {
    news.response = ErrorResponse(status_);
  }
  return news;
}

std::string Generation::FirstEvents() {
  std::string events;
  for (int i = 0; i < request_.num_sequences(); ++i) events += EventOf(response_.FirstChunk(i));
  return events;
}

std::string Generation::EventsOf(const std::vector<Event>& events, bool is_over) {
  std::string text;
  for (const Event& event : events) {
    if (!event.is_end) {
      text += EventOf(response_.Chunk(event.choice, event.piece));
      continue;
    }
    const std::string_view reason = NameOf(sequences_[event.choice].completion.finish_reason);
    Json chunk = response_.EndChunk(event.choice,
                                    request_.prompt_only ? NameOf(FinishReason::kLength) : reason);
    const bool is_last = is_over && &event == &events.back();
    if (is_last) response_.AddReports(Completions(), &chunk);
    text += EventOf(chunk);
  }
  return text;
}

std::string Generation::LastEvents() {
  std::string events;
  if (request_.include_usage) events = EventOf(response_.UsageChunk(Completions()));
  return events + kDone;
}

std::vector<Completion> Generation::Completions() const {
  std::vector<Completion> completions;
  for (const Sequence& sequence : sequences_) completions.push_back(sequence.completion);
  return completions;
}

void Generation::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    on_news_ = nullptr;
  }
  CancelOthers();
}

void Generation::CancelOthers() {
  for (const Sequence& sequence : sequences_) {
    if (sequence.id != 0) host_.engine->Cancel(sequence.id);
  }
}

Generation::Summary Generation::summary() const {
  Summary summary;
  absl::MutexLock lock(&mutex_);
  for (const Sequence& sequence : sequences_) {
    if (!sequence.is_done) continue;
    summary.prompt_tokens += sequence.completion.prompt_tokens;
    summary.completion_tokens += static_cast<int64_t>(sequence.completion.token_ids.size());
    summary.finish_reason = std::string(NameOf(sequence.completion.finish_reason));
  }
  return summary;
}

}  // namespace tandem
