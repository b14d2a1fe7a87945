#include "kvtransfer/page_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Pages on their way to one peer: enough for a link of 10 Gbit/s and 3 ms.
constexpr size_t kMostBytesOnWay = size_t{4} << 20;
constexpr size_t kMostAsks = 1024;

}  // namespace

absl::Status PageSender::Take(AskPages ask) {
  if (asks_.size() >= kMostAsks) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it asks for more than ", kMostAsks, " runs of pages at a time"));
  }
  offered_->Extend(ask.lease);
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
    if (bytes_on_way_ >= kMostBytesOnWay) return false;
    const OfferedPages::Found found = offered_->Find(ask.lease, ask.keys[asked->num_sent]);
    if (found.presence == OfferedPages::Presence::kComing) return false;
    if (found.presence == OfferedPages::Presence::kNever || found.page->pool != ask.pool) {
      SendFinish(*asked, "the next page is not there");
      return true;
    }
    if (bytes_on_way_ == 0) last_sent_ = Instant::Now();
    bytes_on_way_ += found.page->bytes.size();
    link_->SendPage(peer_, ask.number, asked->num_sent, found.page);
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

void PageSender::OnSent(size_t size) {
  bytes_on_way_ -= std::min(size, bytes_on_way_);
  last_sent_ = Instant::Now();
}

}  // namespace tandem
