#include "engine/delivery.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/guard.h"
#include "base/log.h"
#include "tandem/owned_piece.h"

namespace tandem {

// ---- One generation ----

Channel::Channel(Delivery* delivery, OnPiece on_piece, OnResult on_result)
    : delivery_(delivery), on_piece_(std::move(on_piece)), on_result_(std::move(on_result)) {}

bool Channel::Put(const Piece& piece) {
  if (on_piece_ == nullptr) return true;
  if (delivery_->is_inline()) {
    HandOver(piece);
    absl::MutexLock lock(&mutex_);
    return !is_over_;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return false;
    if (!piece_.has_value()) piece_.emplace();
    piece_->Append(piece);
    if (std::exchange(is_queued_, true)) return true;
  }
  delivery_->Queue(shared_from_this());
  return true;
}

void Channel::Close(absl::StatusOr<Completion> result) {
  if (delivery_->is_inline()) return HandOver(std::move(result));
  {
    absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    if (std::exchange(is_queued_, true)) return;
  }
  delivery_->Queue(shared_from_this());
}

void Channel::Drain() {
  for (;;) {
    std::optional<OwnedPiece> piece;
    std::optional<absl::StatusOr<Completion>> result;
    {
      absl::MutexLock lock(&mutex_);
      piece.swap(piece_);
      if (!piece.has_value()) result.swap(result_);
      if (!piece.has_value() && !result.has_value()) {
        is_queued_ = false;
        return;
      }
    }
    if (piece.has_value()) {
      HandOver(piece->View());
    } else {
      HandOver(*std::move(result));
    }
  }
}

void Channel::HandOver(const Piece& piece) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return;
  }
  bool goes_on = false;
  failure_ = Caught("on_piece", [&] { goes_on = on_piece_(piece); });
  handed_tokens_ += piece.token_ids.size();
  handed_text_ += piece.text.size();
  if (goes_on) return;
  absl::MutexLock lock(&mutex_);
  is_over_ = true;
}

void Channel::HandOver(absl::StatusOr<Completion> result) {
  bool is_over = false;
  {
    absl::MutexLock lock(&mutex_);
    is_over = is_over_;
  }
  if (!failure_.ok()) {
    result = failure_;
  } else if (is_over && result.ok() && result->token_ids.size() > handed_tokens_) {
    result->finish_reason = FinishReason::kCancelled;
    result->token_ids.resize(handed_tokens_);
    result->provenance.resize(handed_tokens_);
    if (!result->logprobs.empty()) result->logprobs.resize(handed_tokens_);
  }
  if (is_over && result.ok()) result->text.resize(handed_text_);
  on_piece_ = nullptr;
  Attempt("on_done", [&] { std::exchange(on_result_, nullptr)(std::move(result)); });
}

// ---- All of them ----

Delivery::Delivery(CallbackThread thread) : thread_(thread) {
  if (is_inline()) return;
  absl::MutexLock lock(&mutex_);
  threads_.emplace_back([this] { Work(); });
}

Delivery::~Delivery() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<Channel> Delivery::Open(Channel::OnPiece on_piece, Channel::OnResult on_result) {
  return std::shared_ptr<Channel>(new Channel(this, std::move(on_piece), std::move(on_result)));
}

bool Delivery::IsOwnThread() const {
  absl::MutexLock lock(&mutex_);
  const auto is_caller = [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  };
  return std::any_of(threads_.begin(), threads_.end(), is_caller);
}

void Delivery::Queue(std::shared_ptr<Channel> channel) {
  absl::MutexLock lock(&mutex_);
  ready_.splice(ready_.end(), channel->place_);
  ready_.back() = std::move(channel);
  if (ready_.size() > static_cast<size_t>(num_idle_)) AddThread();
}

// If no thread can be added, the existing threads deliver what is waiting.
void Delivery::AddThread() {
  if (is_stopping_ || threads_.size() >= kMaxThreads) return;
  Attempt("starting a thread for callbacks", [this] { threads_.emplace_back([this] { Work(); }); });
}

void Delivery::Work() {
  const auto has_work = [this] {
    mutex_.AssertReaderHeld();
    return is_stopping_ || !ready_.empty();
  };
  for (;;) {
    std::shared_ptr<Channel> channel;
    {
      absl::MutexLock lock(&mutex_);
      ++num_idle_;
      mutex_.Await(absl::Condition(&has_work));
      --num_idle_;
      if (ready_.empty()) return;
      channel = std::move(ready_.front());
      channel->place_.splice(channel->place_.begin(), ready_, ready_.begin());
    }
    channel->Drain();
  }
}

OwnedPiece OwnedPiece::Of(const Piece& piece) {
  OwnedPiece owned;
  owned.Append(piece);
  return owned;
}

void OwnedPiece::Append(const Piece& next) {
  text += next.text;
  token_ids.insert(token_ids.end(), next.token_ids.begin(), next.token_ids.end());
  provenance += next.provenance;
  logprobs.insert(logprobs.end(), next.logprobs.begin(), next.logprobs.end());
  choice_logprobs.insert(choice_logprobs.end(), next.choice_logprobs.begin(),
                         next.choice_logprobs.end());
  rejected.insert(rejected.end(), next.rejected.begin(), next.rejected.end());
  const int proposed = round.proposed + next.round.proposed;
  const int accepted = round.accepted + next.round.accepted;
  round = next.round;
  round.proposed = proposed;
  round.accepted = accepted;
  if (next.prompt_progress.has_value()) prompt_progress = next.prompt_progress;
}

Piece OwnedPiece::View() const {
  return {.text = text,
          .token_ids = token_ids,
          .provenance = provenance,
          .logprobs = logprobs,
          .choice_logprobs = choice_logprobs,
          .rejected = rejected,
          .round = round,
          .prompt_progress = prompt_progress};
}

size_t OwnedPiece::SizeInBytes() const {
  size_t size = sizeof(*this) + text.size() + token_ids.size() * (sizeof(TokenId) + 1);
  for (const TokenLogprobs& row : logprobs) {
    size += sizeof(row) + row.top.size() * sizeof(row.top[0]);
  }
  for (const ChoiceLogprob& choice : choice_logprobs) size += sizeof(choice) + choice.text.size();
  for (const std::vector<TokenId>& draft : rejected) {
    size += sizeof(std::vector<TokenId>) + draft.size() * sizeof(TokenId);
  }
  return size;
}

}  // namespace tandem
