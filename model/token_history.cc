#include "model/token_history.h"

#include "absl/cleanup/cleanup.h"
#include "base/check.h"

namespace tandem {

TokenHistory::TokenHistory(const TokenHistory& other) { *this = other; }

TokenHistory& TokenHistory::operator=(const TokenHistory& other) {
  if (this == &other) return *this;
  counts_ = other.counts_;
  num_output_ = other.num_output_;
  constraint_ = other.constraint_ == nullptr ? nullptr : other.constraint_->Clone();
  num_broken_ = other.num_broken_;
  return *this;
}

void TokenHistory::AddPrompt(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) ++counts_[token].in_prompt;
}

void TokenHistory::AddOutput(TokenId token) {
  const auto count = counts_.try_emplace(token).first;
  absl::Cleanup undo = [&] {
    if (count->second.in_prompt == 0 && count->second.in_output == 0) counts_.erase(count);
  };
  if (constraint_ != nullptr && (num_broken_ > 0 || !constraint_->Accept(token))) ++num_broken_;
  ++count->second.in_output;
  ++num_output_;
}

void TokenHistory::Commit() {
  if (constraint_ != nullptr && num_broken_ == 0) constraint_->Commit();
}

void TokenHistory::RemoveOutput(TokenId token) {
  const auto it = counts_.find(token);
  TANDEM_CHECK(it != counts_.end() && it->second.in_output > 0);
  --num_output_;
  if (--it->second.in_output == 0 && it->second.in_prompt == 0) counts_.erase(it);
  if (num_broken_ > 0) {
    --num_broken_;
  } else if (constraint_ != nullptr) {
    constraint_->Undo();
  }
}

absl::Span<const uint32_t> TokenHistory::Allowed() const {
  TANDEM_CHECK(constraint_ != nullptr);
  return num_broken_ > 0 ? absl::Span<const uint32_t>() : constraint_->Allowed();
}

absl::Status TokenHistory::constraint_status() const {
  return constraint_ == nullptr ? absl::OkStatus() : constraint_->status();
}

bool TokenHistory::is_followed() const { return num_broken_ == 0 && constraint_status().ok(); }

bool TokenHistory::may_draft() const { return constraint_ == nullptr || constraint_->may_draft(); }

absl::Duration TokenHistory::constraint_work() const {
  return constraint_ == nullptr ? absl::ZeroDuration() : constraint_->work();
}

std::string TokenHistory::Forced() const {
  return constraint_ == nullptr || num_broken_ > 0 ? "" : constraint_->Forced();
}

std::vector<TokenId> TokenHistory::ForcedTokens() const {
  return constraint_ == nullptr || num_broken_ > 0 ? std::vector<TokenId>()
                                                   : constraint_->ForcedTokens();
}

int TokenHistory::num_free() const {
  TANDEM_CHECK(constraint_ != nullptr);
  return num_broken_ > 0 ? 0 : constraint_->num_free();
}

DraftWalk::~DraftWalk() {
  for (; !tokens_.empty(); tokens_.pop_back()) history_->RemoveOutput(tokens_.back());
}

void DraftWalk::Add(TokenId token) {
  if (history_ == nullptr) return;
  tokens_.push_back(token);
  absl::Cleanup undo = [this] { tokens_.pop_back(); };
  history_->AddOutput(token);
  std::move(undo).Cancel();
}

}  // namespace tandem
