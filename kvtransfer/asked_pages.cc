#include "kvtransfer/asked_pages.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace tandem {

AskedPages::AskedPages(uint64_t number, size_t num_pages, size_t page_bytes,
                       const std::shared_ptr<SpareBuffers>& spares)
    : number_(number),
      num_pages_(num_pages),
      page_bytes_(page_bytes),
      pages_(num_pages),
      num_coming_(num_pages) {
  for (Page& page : pages_) {
    page.buffer = PageBuffer(new std::vector<std::byte>(spares->Take(page_bytes)),
                             [spares](std::vector<std::byte>* gone) {
                               spares->Give(std::move(*gone));
                               delete gone;
                             });
  }
}

PageBuffer AskedPages::BufferOf(const PageHeader& header, size_t size) {
  absl::MutexLock lock(&mutex_);
  if (header.index >= num_pages_ || pages_[header.index].state != State::kAwaited) return nullptr;
  Page& page = pages_[header.index];
  page.state = size == page_bytes_ ? State::kArriving : State::kOfOtherSize;
  return size == page_bytes_ ? page.buffer : nullptr;
}

void AskedPages::Fill(const PageHeader& header) {
  absl::MutexLock lock(&mutex_);
  Page& page = pages_[header.index];
  page.state = State::kFilled;
  page.checksum = header.checksum;
}

void AskedPages::Finish(size_t num_sent) {
  absl::MutexLock lock(&mutex_);
  num_coming_ = std::min(num_coming_, num_sent);
  is_finished_ = true;
}

bool AskedPages::IsComplete() const {
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; is_finished_ && i < num_coming_; ++i) {
    if (!IsDecided(i)) return false;
  }
  return is_finished_;
}

void AskedPages::Fail() {
  absl::MutexLock lock(&mutex_);
  has_failed_ = true;
}

bool AskedPages::IsDecided(size_t index) const {
  const State state = pages_[index].state;
  return state == State::kFilled || state == State::kOfOtherSize || index >= num_coming_ ||
         has_failed_;
}

AskedPages::Outcome AskedPages::Await(size_t index, absl::Span<const std::byte>* bytes) {
  PageBuffer buffer;
  uint64_t checksum = 0;
  {
    const auto is_decided = [&] {
      mutex_.AssertReaderHeld();
      return IsDecided(index);
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_decided));
    const Page& page = pages_[index];
    if (page.state == State::kOfOtherSize) return Outcome::kDamaged;
    if (page.state != State::kFilled) {
      return index >= num_coming_ ? Outcome::kNotThere : Outcome::kFailed;
    }
    buffer = page.buffer;
    checksum = page.checksum;
  }
  if (XXH3_64bits(buffer->data(), buffer->size()) != checksum) return Outcome::kDamaged;
  *bytes = *buffer;
  return Outcome::kThere;
}

}  // namespace tandem
