#include "kvcache/transfer/page_request.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Limit on the pages in flight to one peer: enough for a link of 10 Gbit/s and 3 ms.
constexpr size_t kMaxBytesOnWay = size_t{4} << 20;
constexpr size_t kMaxRequests = 1024;

}  // namespace

PageRequest::PageRequest(uint64_t number, size_t num_pages, size_t page_bytes,
                         const std::shared_ptr<SpareBuffers>& spares)
    : number_(number),
      num_pages_(num_pages),
      page_bytes_(page_bytes),
      pages_(num_pages),
      num_coming_(num_pages) {
  for (Page& page : pages_) {
    page.buffer = BlockBuffer(new std::vector<std::byte>(spares->Take(page_bytes)),
                              [spares](std::vector<std::byte>* gone) {
                                spares->Give(std::move(*gone));
                                delete gone;
                              });
  }
}

BlockBuffer PageRequest::BufferOf(const BlockHeader& header, size_t size) {
  absl::MutexLock lock(&mutex_);
  if (header.index >= num_pages_ || pages_[header.index].state != State::kAwaited) return nullptr;
  Page& page = pages_[header.index];
  page.state = size == page_bytes_ ? State::kArriving : State::kOfOtherSize;
  return size == page_bytes_ ? page.buffer : nullptr;
}

void PageRequest::Fill(const BlockHeader& header) {
  absl::MutexLock lock(&mutex_);
  Page& page = pages_[header.index];
  page.state = State::kFilled;
  page.checksum = header.checksum;
}

void PageRequest::Finish(size_t num_sent) {
  absl::MutexLock lock(&mutex_);
  num_coming_ = std::min(num_coming_, num_sent);
  is_finished_ = true;
}

bool PageRequest::IsComplete() const {
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; is_finished_ && i < num_coming_; ++i) {
    if (!IsDecided(i)) return false;
  }
  return is_finished_;
}

void PageRequest::Fail() {
  absl::MutexLock lock(&mutex_);
  has_failed_ = true;
}

bool PageRequest::IsDecided(size_t index) const {
  const State state = pages_[index].state;
  return state == State::kFilled || state == State::kOfOtherSize || index >= num_coming_ ||
         has_failed_;
}

PageRequest::Outcome PageRequest::Await(size_t index, absl::Span<const std::byte>* bytes) {
  BlockBuffer buffer;
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

absl::Status PageSender::Take(AskPages ask) {
  if (asks_.size() >= kMaxRequests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it asks for more than ", kMaxRequests, " runs of pages at a time"));
  }
  offered_->Claim(ask.lease, peer_);
  asks_.push_back({.ask = std::move(ask)});
  return absl::OkStatus();
}

void PageSender::Take(const Cancel& cancel) {
  std::erase_if(asks_, [&](const Asked& asked) { return asked.ask.number == cancel.number; });
}

void PageSender::Refuse(const AskPages& ask, const std::string& reason) {
  SendFinish({.ask = {.number = ask.number}}, reason);
}

void PageSender::Pump() {
  for (auto asked = asks_.begin(); asked != asks_.end();) {
    if (Answer(&*asked)) {
      asked = asks_.erase(asked);
    } else {
      ++asked;
    }
  }
}

bool PageSender::Answer(Asked* asked) {
  const AskPages& ask = asked->ask;
  while (asked->num_sent < ask.keys.size()) {
    if (bytes_on_way_ >= kMaxBytesOnWay) return false;
    const OfferedPages::Found found = offered_->Find(ask.lease, ask.keys[asked->num_sent]);
    if (found.presence == OfferedPages::Presence::kComing) return false;
    if (found.presence == OfferedPages::Presence::kNever || found.page->pool != ask.pool) {
      SendFinish(*asked, "the next page is not available");
      return true;
    }
    bytes_on_way_ += found.page->bytes.size();
    offered_->Took(ask.lease, *found.page, ask.keys[asked->num_sent], peer_);
    link_->SendBlock(
        peer_, {.tag = ask.number, .index = asked->num_sent, .checksum = found.page->checksum},
        found.page->bytes, found.page);
    ++asked->num_sent;
  }
  SendFinish(*asked, "");
  return true;
}

void PageSender::SendFinish(const Asked& asked, const std::string& reason) {
  link_->SendMessage(peer_, Encode(Finish{.number = asked.ask.number,
                                          .num_sent = static_cast<int64_t>(asked.num_sent),
                                          .reason = reason}));
}

void PageSender::OnSent(size_t size) { bytes_on_way_ -= std::min(size, bytes_on_way_); }

}  // namespace tandem
