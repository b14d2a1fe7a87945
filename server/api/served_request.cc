#include "server/api/served_request.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "server/api/api_error.h"
#include "server/api/chat_fields.h"
#include "tandem/field_error.h"

namespace tandem {

ServedRequest::ServedRequest(const GenerationHost& host, ApiRequest request, AnswerStamp stamp)
    : host_(host),
      request_(std::move(request)),
      writer_(AnswerWriter::Make(&request_, &host.pair->model, std::move(stamp))) {}

absl::StatusOr<std::shared_ptr<ServedRequest>> ServedRequest::Start(const GenerationHost& host,
                                                                    ApiRequest request,
                                                                    AnswerStamp stamp,
                                                                    Instant requested) {
  ASSIGN_OR_RETURN(std::vector<Admission::Place> places,
                   host.pair->admission.Enter(request.num_sequences()));
  std::shared_ptr<ServedRequest> generation(
      new ServedRequest(host, std::move(request), std::move(stamp)));
  generation->sequences_.reserve(places.size());
  for (Admission::Place& place : places) {
    generation->sequences_.push_back(
        {.place = std::move(place), .latency = SequenceLatency(host.pair->metrics, requested)});
  }
  RETURN_IF_ERROR(generation->Submit());
  return generation;
}

// If one submission fails or throws, the sequences submitted before it are cancelled and leave when
// they end. The places of the others are freed at once.
absl::Status ServedRequest::Submit() {
  const int count = request_.num_sequences();
  {
    absl::MutexLock lock(&mutex_);
    num_running_ = count;
  }
  int num_submitted = 0;
  absl::Cleanup give_up = [&] {
    Cancel();
    for (int i = num_submitted; i < count; ++i) sequences_[i].place = Admission::Place();
  };
  for (; num_submitted < count; ++num_submitted) {
    const int i = num_submitted;
    const auto self = shared_from_this();
    absl::StatusOr<GenerationId> id = host_.pair->engine->Submit(
        request_.RequestOf(i), [self, i](const Piece& piece) { return self->OnPiece(i, piece); },
        [self, i](absl::StatusOr<Completion> result) { self->OnDone(i, std::move(result)); });
    if (!id.ok()) return request_.WithRequestFieldNames(id.status());
    sequences_[i].id = *id;
  }
  std::move(give_up).Cancel();
  return absl::OkStatus();
}

// ---- On the engine's thread ----

bool ServedRequest::OnPiece(int choice, const Piece& piece) {
  sequences_[choice].latency.OnTokens(Instant::Now(), static_cast<int>(piece.token_ids.size()));
  absl::MutexLock lock(&mutex_);
  if (is_cancelled_ || !status_.ok()) return false;
  if (!request_.stream) return true;
  Enqueue(choice, piece);
  if (queued_bytes_ > host_.max_unread_bytes) {
    status_ =
        WithCode(absl::UnavailableError(absl::StrCat("the client reads too slowly: more than ",
                                                     host_.max_unread_bytes, " bytes wait for it")),
                 "slow_client");
  }
  Notify();
  return status_.ok();
}

void ServedRequest::Enqueue(int choice, const Piece& piece) {
  if (request_.request.prompt_progress) {
    const auto last = std::find_if(queue_.rbegin(), queue_.rend(),
                                   [choice](const Event& event) { return event.choice == choice; });
    if (last != queue_.rend() && last->piece.is_progress()) {
      queued_bytes_ -= last->piece.SizeInBytes();
      last->piece.Append(piece);
      queued_bytes_ += last->piece.SizeInBytes();
      return;
    }
  }
  queue_.push_back({.choice = choice, .piece = OwnedPiece::Of(piece)});
  queued_bytes_ += queue_.back().piece.SizeInBytes();
}

void ServedRequest::OnDone(int choice, absl::StatusOr<Completion> result) {
  // Released at the very end: the server may be destroyed once the last place is free.
  const Admission::Place place = std::move(sequences_[choice].place);
  absl::MutexLock lock(&mutex_);
  --num_running_;
  status_.Update(Caught("request", [&] { TakeEnd(choice, std::move(result)); }));
  Notify();
  // The listener may be destroyed before the server, and this may hold the last reference to it.
  if (num_running_ == 0) on_news_ = nullptr;
}

void ServedRequest::TakeEnd(int choice, absl::StatusOr<Completion> result) {
  sequences_[choice].latency.OnEnd(Instant::Now());
  Event end{.choice = choice};
  if (!result.ok()) {
    status_.Update(request_.WithRequestFieldNames(result.status()));
  } else {
    // Cancelled, but not by the client: the server is stopping.
    if (result->finish_reason == FinishReason::kCancelled && !is_cancelled_) {
      status_.Update(ServerIsStopping());
    }
    summary_.prompt_tokens += result->prompt_tokens;
    summary_.completion_tokens += static_cast<int64_t>(result->token_ids.size());
    summary_.finish_reason = std::string(NameOf(result->finish_reason));
    end.finish_reason = result->finish_reason;
    host_.pair->metrics->CountEnd(summary_.finish_reason);
    host_.pair->metrics->ObserveTimings(result->timings);
    if (request_.stream) result->logprobs = std::vector<TokenLogprobs>();  // sent with the pieces
    sequences_[choice].completion = *std::move(result);
  }
  if (request_.stream) queue_.push_back(std::move(end));
}

void ServedRequest::Notify() {
  const bool is_of_interest = request_.stream || num_running_ == 0 || !status_.ok();
  if (!is_of_interest || has_notified_ || on_news_ == nullptr) return;
  has_notified_ = true;
  on_news_();
}

// ---- On the connection's thread ----

void ServedRequest::Listen(std::function<void()> on_news) {
  absl::MutexLock lock(&mutex_);
  on_news_ = std::move(on_news);
  has_notified_ = false;
  if (!queue_.empty() || num_running_ == 0 || !status_.ok()) Notify();
  if (num_running_ == 0) on_news_ = nullptr;
}

ServedRequest::Update ServedRequest::Take() {
  std::vector<Event> events;
  absl::Status status;
  Update update;
  {
    absl::MutexLock lock(&mutex_);
    has_notified_ = false;
    events.swap(queue_);
    queued_bytes_ = 0;
    status = status_;
    update.is_over = num_running_ == 0 || !status.ok();
  }
  if (events.empty() && !update.is_over) return update;
  const ErrorForm form = request_.is_message ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
  if (!request_.stream) {
    update.response = status.ok() ? FullResponse() : ErrorResponse(status, form);
    return update;
  }
  if (!status.ok()) {
    CancelOthers();
    if (!has_begun_ && !head_is_sent_) {
      update.response = ErrorResponse(status, form);
      return update;
    }
  } else if (!has_begun_) {
    update.events = writer_->FirstEvents();
  }
  has_begun_ = true;
  if (status.ok()) {
    const std::vector<Completion> completions =
        update.is_over ? TakeCompletions() : std::vector<Completion>();
    update.events += EventsOf(events, completions);
    if (update.is_over) update.events += writer_->LastEvents(completions);
  } else {
    update.events += writer_->ErrorEvents(status);
  }
  return update;
}

HttpResponse ServedRequest::FullResponse() {
  const std::vector<Completion> completions = TakeCompletions();
  return {.body = writer_->FullAnswer(completions),
          .headers = {{kCacheHeader, CacheUse::Of(request_, completions).Header()}}};
}

// `completions` has all completions if `events` end the stream, else it is empty.
std::string ServedRequest::EventsOf(const std::vector<Event>& events,
                                    absl::Span<const Completion> completions) {
  std::string text;
  for (const Event& event : events) {
    if (!event.finish_reason.has_value()) {
      text += writer_->PieceEvents(event.choice, event.piece);
      continue;
    }
    const bool is_last = &event == &events.back();
    text += writer_->EndEvents(event.choice, *event.finish_reason,
                               is_last ? completions : absl::Span<const Completion>());
  }
  return text;
}

std::vector<Completion> ServedRequest::TakeCompletions() {
  std::vector<Completion> completions;
  for (Sequence& sequence : sequences_) completions.push_back(std::move(sequence.completion));
  return completions;
}

void ServedRequest::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    on_news_ = nullptr;
  }
  CancelOthers();
}

void ServedRequest::Fail(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (num_running_ == 0) return;
  status_.Update(why);
  Notify();
}

void ServedRequest::CancelOthers() {
  for (const Sequence& sequence : sequences_) {
    if (sequence.id != 0) host_.pair->engine->Cancel(sequence.id);
  }
}

std::vector<std::pair<std::string, std::string>> ServedRequest::headers() const {
  auto headers = request_.ignored.Headers();
  if (request_.has_generic_tools) headers.emplace_back(kToolFormatHeader, kGenericToolFormat);
  return headers;
}

ServedRequest::Summary ServedRequest::summary() const {
  absl::MutexLock lock(&mutex_);
  return summary_;
}

}  // namespace tandem
