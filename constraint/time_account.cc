#include "constraint/time_account.h"

#include "base/check.h"

namespace tandem {

absl::Duration TimeAccount::LeftAt(size_t depth) const {
  absl::Duration left = left_ - places_[0].time();
  for (size_t i = 1; i <= depth; ++i) left = Refilled(left) - places_[i].time();
  return left;
}

absl::Duration TimeAccount::LeftForMask() const {
  return LeftAt(depth_) + places_[depth_].mask_time;
}

void TimeAccount::AddMask(absl::Duration time) {
  places_[depth_].mask_time = time;
  for_drafts_ -= time;
}

void TimeAccount::AddToken(TokenId token, absl::Duration time) {
  if (depth_ + 1 == places_.size() || places_[depth_ + 1].token != token) {
    places_.resize(depth_ + 1);
    places_.push_back({.token = token});
  }
  ++depth_;
  places_[depth_].accept_time = time;
  for_drafts_ -= time;
}

void TimeAccount::Undo() {
  TANDEM_CHECK(depth_ > 0);
  --depth_;
}

void TimeAccount::Commit() {
  for (; depth_ > 0; --depth_) {
    left_ = Refilled(left_ - places_[0].time());
    for_drafts_ = Refilled(for_drafts_ + places_[0].time());
    replay_time_ += places_[1].accept_time;
    places_.erase(places_.begin());
  }
}

}  // namespace tandem
