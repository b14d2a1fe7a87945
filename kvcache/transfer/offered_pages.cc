#include "kvcache/transfer/offered_pages.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace tandem {

OfferedPages::OfferedPages(const Options& options)
    : options_(options), spares_(std::make_shared<SpareBuffers>()) {}

bool OfferedPages::Open(const std::string& lease) {
  absl::MutexLock lock(&mutex_);
  ExpireAt(Instant::Now());
  const auto [place, is_new] = leases_.try_emplace(lease);
  if (!is_new) return false;
  place->second.age = oldest_first_.insert(oldest_first_.end(), lease);
  return true;
}

bool OfferedPages::Add(const std::string& lease, const PoolId& pool, const PageKey& key,
                       size_t page_bytes, absl::FunctionRef<void(absl::Span<std::byte>)> fill) {
  {
    absl::MutexLock lock(&mutex_);
    if (!Reserve(lease, page_bytes)) return false;
  }
  OfferedPage filled{.pool = pool, .bytes = spares_->Take(page_bytes)};
  fill(absl::MakeSpan(filled.bytes));
  filled.checksum = XXH3_64bits(filled.bytes.data(), filled.bytes.size());
  std::shared_ptr<const OfferedPage> page(new OfferedPage(std::move(filled)),
                                          [spares = spares_](OfferedPage* gone) {
                                            spares->Give(std::move(gone->bytes));
                                            delete gone;
                                          });
  absl::MutexLock lock(&mutex_);
  reserved_bytes_ -= page_bytes;
  const auto place = leases_.find(lease);
  if (place == leases_.end()) return false;
  if (place->second.pages.try_emplace(key, std::move(page)).second) {
    place->second.bytes += page_bytes;
    place->second.last[pool] = key;
    stats_.bytes += static_cast<int64_t>(page_bytes);
  }
  if (on_change_) on_change_();
  return true;
}

// Makes room for a page of the lease. Returns false if the lease has ended, or if the page does not
// fit even after all other leases have been evicted.
bool OfferedPages::Reserve(const std::string& lease, size_t page_bytes) {
  ExpireAt(Instant::Now());
  if (!leases_.contains(lease)) return false;
  const auto used = [this] {
    mutex_.AssertReaderHeld();
    return static_cast<size_t>(stats_.bytes) + reserved_bytes_;
  };
  for (auto age = oldest_first_.begin();
       used() + page_bytes > options_.max_bytes && age != oldest_first_.end();) {
    const std::string& oldest = *age++;
    if (oldest == lease) continue;
    ++stats_.leases_evicted;
    End(leases_.find(oldest));
  }
  if (used() + page_bytes > options_.max_bytes) {
    ++stats_.pages_dropped;
    return false;
  }
  reserved_bytes_ += page_bytes;
  return true;
}

void OfferedPages::Complete(const std::string& lease) {
  absl::MutexLock lock(&mutex_);
  const Instant now = Instant::Now();
  ExpireAt(now);
  const auto place = leases_.find(lease);
  if (place == leases_.end()) return;
  place->second.is_complete = true;
  place->second.end = now + options_.lease;
  first_end_ = std::min(first_end_, place->second.end);
  if (on_change_) on_change_();
}

OfferedPages::Found OfferedPages::Find(const std::string& lease, const PageKey& key) {
  absl::MutexLock lock(&mutex_);
  ExpireAt(Instant::Now());
  const auto place = leases_.find(lease);
  if (place == leases_.end()) return {};
  const auto page = place->second.pages.find(key);
  if (page != place->second.pages.end()) return {Presence::kThere, page->second};
  return {place->second.is_complete ? Presence::kNever : Presence::kComing, nullptr};
}

bool OfferedPages::Claim(const std::string& lease, Taker taker) {
  {
    absl::MutexLock lock(&mutex_);
    const auto place = leases_.find(lease);
    if (place != leases_.end()) place->second.takers.try_emplace(taker);
  }
  return Extend(lease, taker);
}

bool OfferedPages::Extend(const std::string& lease, Taker taker) {
  absl::MutexLock lock(&mutex_);
  const Instant now = Instant::Now();
  ExpireAt(now);
  const auto place = leases_.find(lease);
  if (place == leases_.end() || !place->second.takers.contains(taker)) return false;
  place->second.end = now + options_.lease;
  return true;
}

void OfferedPages::Took(const std::string& lease, const OfferedPage& page, const PageKey& key,
                        Taker taker) {
  absl::MutexLock lock(&mutex_);
  const auto place = leases_.find(lease);
  if (place != leases_.end()) place->second.takers[taker][page.pool] = key;
}

void OfferedPages::ReleaseTaken(const std::string& lease, Taker taker) {
  absl::MutexLock lock(&mutex_);
  ExpireAt(Instant::Now());
  const auto place = leases_.find(lease);
  if (place == leases_.end()) return;
  for (const auto& [pool, key] : place->second.takers[taker]) {
    if (place->second.last[pool] == key) return End(place);
  }
}

void OfferedPages::Release(const std::string& lease) {
  absl::MutexLock lock(&mutex_);
  ExpireAt(Instant::Now());
  const auto place = leases_.find(lease);
  if (place != leases_.end()) End(place);
}

void OfferedPages::set_on_change(std::function<void()> on_change) {
  absl::MutexLock lock(&mutex_);
  on_change_ = std::move(on_change);
}

OfferedPages::Stats OfferedPages::stats() const {
  absl::MutexLock lock(&mutex_);
  ExpireAt(Instant::Now());
  Stats stats = stats_;
  stats.leases = static_cast<int64_t>(leases_.size());
  return stats;
}

void OfferedPages::ExpireAt(Instant now) const {
  if (now < first_end_) return;
  first_end_ = Instant::InfiniteFuture();
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (!lease->second.is_complete || now < lease->second.end) {
      if (lease->second.is_complete) first_end_ = std::min(first_end_, lease->second.end);
      ++lease;
      continue;
    }
    ++stats_.leases_expired;
    End(lease++);
  }
}

void OfferedPages::End(Leases::iterator lease) const {
  stats_.bytes -= static_cast<int64_t>(lease->second.bytes);
  oldest_first_.erase(lease->second.age);
  leases_.erase(lease);
  if (on_change_) on_change_();
}

}  // namespace tandem
