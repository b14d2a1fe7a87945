#include "kvcache/store/fetch.h"

#include <algorithm>
#include <utility>

namespace tandem {

std::vector<Fetch::Arrival> Fetch::Take() {
  absl::MutexLock lock(&mutex_);
  num_bytes_ = 0;
  return std::exchange(arrivals_, {});
}

void Fetch::Recycle(std::vector<Arrival> arrivals) {
  for (Arrival& arrival : arrivals) spares_.Give(std::move(arrival.bytes));
}

bool Fetch::is_over() const {
  absl::MutexLock lock(&mutex_);
  return is_finished_ && arrivals_.empty();
}

void Fetch::Await(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto has_any = [this] {
    mutex_.AssertReaderHeld();
    return has_news();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&has_any), timeout);
}

void Fetch::Cancel() {
  absl::MutexLock lock(&mutex_);
  is_cancelled_ = true;
}

void Fetch::Finish() {
  absl::MutexLock lock(&mutex_);
  is_finished_ = true;
}

int Fetch::ReadFrom(PageReader* pages) {
  int num_pages = 0;
  for (int run = 0; run < static_cast<int>(runs_.size()); ++run) {
    const StoredRun& r = runs_[run];
    const auto put = [&](int page, absl::Span<const std::byte> bytes) {
      return Put(run, page, bytes);
    };
    num_pages += pages->Read(r.pool, r.pages, r.page_bytes, put);
  }
  return num_pages;
}

// Waits until there is room for the page. Returns false after Cancel.
bool Fetch::Put(int run, int page, absl::Span<const std::byte> bytes) {
  {
    absl::MutexLock lock(&mutex_);
    const auto has_room = [this] {
      mutex_.AssertReaderHeld();
      return is_cancelled_ || num_bytes_ < max_bytes_;
    };
    mutex_.Await(absl::Condition(&has_room));
    if (is_cancelled_) return false;
  }
  Arrival arrival{.run = run, .page = page, .bytes = spares_.Take(bytes.size())};
  std::copy(bytes.begin(), bytes.end(), arrival.bytes.begin());
  absl::MutexLock lock(&mutex_);
  num_bytes_ += bytes.size();
  arrivals_.push_back(std::move(arrival));
  return true;
}

}  // namespace tandem
