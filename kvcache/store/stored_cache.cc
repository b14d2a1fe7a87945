#include "kvcache/store/stored_cache.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace tandem {

StoredCache::StoredCache(PagedKvCache* cache, PoolInfo pool, StoreWorker* worker)
    : cache_(cache),
      pool_(pool.id),
      worker_(worker),
      number_(worker == nullptr ? 0 : worker->AddPool(std::move(pool))),
      keys_(cache->num_pages()),
      depths_(cache->num_pages()) {
  cache_->AddObserver(this);
}

StoredCache::~StoredCache() { cache_->RemoveObserver(this); }

// Returns the key of a page, or of a root.
PageKey StoredCache::KeyOf(PageId page, const CacheSalt& salt) const {
  if (page >= 0) return keys_[page];
  return RootKey(pool_, PrefixIndex::RootOf(0) - page, salt == nullptr ? "" : *salt);
}

void StoredCache::OnPublish(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                            const CacheSalt& salt) {
  keys_[page] = PageKey();
  const PageKey parent_key = KeyOf(parent, salt);
  if (parent_key == PageKey()) return;
  keys_[page] = KeyAfter(parent_key, tokens);
  depths_[page] = parent >= 0 ? depths_[parent] + 1 : 0;
  if (is_inserting_ || worker_ == nullptr) return;
  unwritten_.push_back(
      {.page = page, .parent = parent_key, .tokens = {tokens.begin(), tokens.end()}});
}

// Pages that cannot be read are not written: the failure of the device fails its next pass.
void StoredCache::OnAllPublished() {
  if (unwritten_.empty()) return;
  const std::vector<Unwritten> pages = std::exchange(unwritten_, {});
  std::vector<PageId> ids;
  for (const Unwritten& one : pages) ids.push_back(one.page);
  cache_
      ->ReadPages(ids,
                  [&](int i, Backend::CopyPage copy) {
                    worker_->Write(number_, pages[i].parent, keys_[ids[i]], depths_[ids[i]],
                                   pages[i].tokens, cache_->layout().page_bytes(), copy);
                    return true;
                  })
      .IgnoreError();
}

void StoredCache::OnEvict(PageId page) {
  std::erase_if(unwritten_, [page](const Unwritten& one) { return one.page == page; });
}

StoredRun StoredCache::Missing(absl::Span<const TokenId> tokens, int variant,
                               const CacheSalt& salt) {
  const int page_size = cache_->layout().page_size;
  const int num_pages = std::max(static_cast<int>(tokens.size()) - 1, 0) / page_size;
  StoredRun run{
      .pool = pool_, .page_bytes = cache_->layout().page_bytes(), .variant = variant, .salt = salt};
  const KvSequence held = cache_->HoldPublished(tokens.first(num_pages * page_size), variant, salt);
  std::vector<PageKey> keys;
  for (const PageId page : held.pages()) keys.push_back(keys_[page]);
  run.first_page = static_cast<int>(keys.size());
  PageKey last = keys.empty() ? KeyOf(PrefixIndex::RootOf(variant), salt) : keys.back();
  if (last == PageKey()) return run;
  run.tokens = {tokens.begin(), tokens.begin() + num_pages * page_size};
  for (int i = run.first_page; i < num_pages; ++i) {
    const auto own = absl::MakeConstSpan(run.tokens).subspan(i * page_size, page_size);
    last = KeyAfter(last, own);
    keys.push_back(last);
    run.pages.push_back({.key = last, .depth = i, .tokens = own});
  }
  if (!keys.empty() && worker_ != nullptr) worker_->Touch(std::move(keys));
  return run;
}

int StoredCache::Insert(const StoredRun& run, int first,
                        absl::Span<const absl::Span<const std::byte>> pages) {
  const int page_size = cache_->layout().page_size;
  const auto tokens_to = [&](int page) {
    return absl::MakeConstSpan(run.tokens).first((run.first_page + page) * page_size);
  };
  const int num_wanted = first + static_cast<int>(pages.size());
  // Other sequences may have computed and published some of them in the meantime.
  KvSequence held = cache_->HoldPublished(tokens_to(num_wanted), run.variant, run.salt);
  int next = static_cast<int>(held.pages().size()) - run.first_page;
  if (next < first) return 0;
  is_inserting_ = true;
  absl::Cleanup done = [this] { is_inserting_ = false; };
  const int num_held = next - first;
  while (next < num_wanted && held.Extend(page_size).ok()) ++next;
  const absl::Span<const PageId> written = held.pages().subspan(run.first_page + first + num_held);
  if (!cache_->WritePages(written, pages.subspan(num_held, written.size())).ok()) return num_held;
  cache_->Publish(tokens_to(next), &held);
  return next - first;
}

int StoredCache::ForPublished(absl::Span<const TokenId> tokens, int variant, const CacheSalt& salt,
                              int first,
                              absl::FunctionRef<bool(const PageKey&, Backend::CopyPage)> give) {
  const KvSequence held = cache_->HoldPublished(tokens, variant, salt);
  absl::Span<const PageId> pages = held.pages();
  pages.remove_prefix(std::min<size_t>(first, pages.size()));
  const auto unknown = std::find_if(pages.begin(), pages.end(),
                                    [&](PageId page) { return keys_[page] == PageKey(); });
  pages = pages.first(unknown - pages.begin());
  int next = first;
  cache_
      ->ReadPages(pages,
                  [&](int i, Backend::CopyPage copy) {
                    if (!give(keys_[pages[i]], copy)) return false;
                    ++next;
                    return true;
                  })
      .IgnoreError();
  return next;
}

}  // namespace tandem
