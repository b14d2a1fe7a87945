#include "kvcache/events/cache_events.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/string_view.h"

namespace tandem {
namespace {

// Returns the last event if it has this type, else null.
template <typename Kind>
Kind* LastOf(std::vector<KvEvent>* events) {
  return events->empty() ? nullptr : std::get_if<Kind>(&events->back());
}

}  // namespace

CacheEvents::CacheEvents(PagedKvCache* cache, std::unique_ptr<KvEventPublisher> publisher)
    : cache_(cache), publisher_(std::move(publisher)), keys_(cache->num_pages()) {
  cache_->AddObserver(this);
}

CacheEvents::~CacheEvents() { cache_->RemoveObserver(this); }

void CacheEvents::Flush() {
  if (events_.empty()) return;
  publisher_->Publish({.time = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()),
                       .events = std::exchange(events_, {})});
}

void CacheEvents::OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                            const CacheSalt& salt) {
  keys_[page] = PageKey();
  const bool is_first = parent < 0;
  const PageKey before =
      is_first ? RootKey(PoolId(), PrefixIndex::RootOf(0) - parent, salt == nullptr ? "" : *salt)
               : keys_[parent];
  if (before == PageKey()) return;  // the pages before it were published without an event
  const PageKey key = KeyAfter(before, tokens);
  PagesStored* last = LastOf<PagesStored>(&events_);
  if (is_first || last == nullptr || last->pages.back() != before) {
    PagesStored stored;
    if (!is_first) stored.parent = before;
    if (is_first && salt != nullptr) stored.tenant = absl::BytesToHexString(View(before.bytes));
    events_.emplace_back(std::move(stored));
    last = LastOf<PagesStored>(&events_);
  }
  last->pages.push_back(key);
  last->tokens.insert(last->tokens.end(), tokens.begin(), tokens.end());
  keys_[page] = key;
}

void CacheEvents::OnEvict(PageId page) {
  const PageKey key = std::exchange(keys_[page], PageKey());
  if (key == PageKey()) return;
  if (LastOf<PagesRemoved>(&events_) == nullptr) events_.emplace_back(PagesRemoved());
  LastOf<PagesRemoved>(&events_)->pages.push_back(key);
}

}  // namespace tandem
