#include "server/api/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {

absl::StatusOr<std::vector<Admission::Place>> Admission::Enter(int count) {
  std::vector<Place> places(count);
  absl::MutexLock lock(&mutex_);
  if (!end_.ok()) return end_;
  const int free = capacity_ - num_inside_;
  if (count > ShareOf(free)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", free, " of ", capacity_,
                     " places are free, and a request may use ", ShareOf(free), " of them; ", count,
                     count == 1 ? " is" : " are", " needed; try again later"));
  }
  num_inside_ += count;
  for (Place& place : places) place.reset(this);
  return places;
}

void Admission::Leave() {
  absl::MutexLock lock(&mutex_);
  --num_inside_;
  TANDEM_CHECK(num_inside_ >= 0);
}

void Admission::Close(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  end_.Update(why);
}

int Admission::num_inside() const {
  absl::MutexLock lock(&mutex_);
  return num_inside_;
}

bool Admission::is_closed() const {
  absl::MutexLock lock(&mutex_);
  return !end_.ok();
}

bool Admission::AwaitEmpty(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto is_empty = [this] {
    mutex_.AssertReaderHeld();
    return num_inside_ == 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_empty), timeout);
}

absl::StatusOr<ByteBudget::Share> ByteBudget::Take(int64_t bytes) {
  const int64_t others = num_held_.fetch_add(bytes);
  Share share(this, {.bytes = bytes});
  if (others + bytes <= capacity_) return share;
  return absl::ResourceExhaustedError(absl::StrCat(
      "body: has ", bytes, " bytes, allowed: ", std::max<int64_t>(capacity_ - others, 0),
      " more while other large requests are in progress; try again later"));
}

}  // namespace tandem
