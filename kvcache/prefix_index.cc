#include "kvcache/prefix_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace tandem {
namespace {

absl::Status BrokenNode(PageId page, absl::string_view what) {
  return absl::InternalError(absl::StrCat("prefix index: page ", page, ": ", what));
}

}  // namespace

uint64_t PrefixIndex::ChainHash(uint64_t parent_key, absl::Span<const TokenId> tokens) {
  return absl::HashOf(parent_key, tokens);
}

uint64_t PrefixIndex::KeyOf(PageId parent, absl::Span<const TokenId> tokens,
                            const CacheSalt& salt) const {
  if (!IsRoot(parent)) return hash_(nodes_[parent].key, tokens);
  const uint64_t variant = kNoPage - parent;
  return hash_(salt == nullptr ? variant : absl::HashOf(variant, *salt), tokens);
}

PageId PrefixIndex::Find(PageId parent, absl::Span<const TokenId> tokens,
                         const CacheSalt& salt) const {
  const auto found = pages_of_key_.find(KeyOf(parent, tokens, salt));
  if (found == pages_of_key_.end()) return kNoPage;
  for (const PageId page : found->second) {
    const Node& node = nodes_[page];
    if (node.parent == parent && node.tokens == tokens &&
        (!IsRoot(parent) || IsSameSalt(node.salt, salt))) {
      return page;
    }
  }
  return kNoPage;
}

void PrefixIndex::Insert(PageId page, PageId parent, absl::Span<const TokenId> tokens,
                         const CacheSalt& salt) {
  TANDEM_CHECK(!Contains(page));
  TANDEM_CHECK(IsRoot(parent) || Contains(parent));
  TANDEM_CHECK(tokens.size() == static_cast<size_t>(page_size_));
  Node node{.published = true,
            .parent = parent,
            .depth = IsRoot(parent) ? 0 : nodes_[parent].depth + 1,
            .key = KeyOf(parent, tokens, salt),
            .tokens = {tokens.begin(), tokens.end()},
            .salt = IsRoot(parent) ? salt : nullptr};
  pages_of_key_[node.key].push_back(page);
  nodes_[page] = std::move(node);
  ++num_published_;
  PushMostRecent(page);
  Block(page);
}

PageId PrefixIndex::EvictLeastRecent() {
  const PageId page = least_recent_;
  TANDEM_CHECK(page != kNoPage);
  RemoveFromList(page);
  Forget(page);
  return page;
}

void PrefixIndex::Block(PageId page) {
  for (; !IsRoot(page); page = nodes_[page].parent) {
    if (nodes_[page].blockers++ > 0) return;  // its parents already count it
    RemoveFromList(page);
  }
}

void PrefixIndex::Unblock(PageId page) {
  for (; !IsRoot(page); page = nodes_[page].parent) {
    TANDEM_CHECK(nodes_[page].blockers > 0);
    if (--nodes_[page].blockers > 0) return;
    PushMostRecent(page);
  }
}

void PrefixIndex::PushMostRecent(PageId page) {
  nodes_[page].more_recent = kNoPage;
  nodes_[page].less_recent = most_recent_;
  (most_recent_ == kNoPage ? least_recent_ : nodes_[most_recent_].more_recent) = page;
  most_recent_ = page;
  ++num_evictable_;
}

void PrefixIndex::RemoveFromList(PageId page) {
  const Node& node = nodes_[page];
  (node.more_recent == kNoPage ? most_recent_ : nodes_[node.more_recent].less_recent) =
      node.less_recent;
  (node.less_recent == kNoPage ? least_recent_ : nodes_[node.less_recent].more_recent) =
      node.more_recent;
  --num_evictable_;
}

void PrefixIndex::Forget(PageId page) {
  Node& node = nodes_[page];
  const auto found = pages_of_key_.find(node.key);
  TANDEM_CHECK(found != pages_of_key_.end());
  auto& same_key = found->second;
  same_key.erase(std::find(same_key.begin(), same_key.end(), page));
  if (same_key.empty()) pages_of_key_.erase(found);
  node = Node();
  --num_published_;
}

absl::Status PrefixIndex::CheckNodes(const std::vector<bool>& used) const {
  std::vector<int> blockers(nodes_.size());
  int num_published = 0;
  for (PageId page = 0; page < static_cast<PageId>(nodes_.size()); ++page) {
    const Node& node = nodes_[page];
    if (!node.published) continue;
    ++num_published;
    if (used[page]) ++blockers[page];
    if (IsRoot(node.parent)) {
      if (node.depth != 0) return BrokenNode(page, "first page of its text, but not at depth 0");
    } else if (!Contains(node.parent) || nodes_[node.parent].depth != node.depth - 1) {
      return BrokenNode(page, "the page before it is not published");
    } else if (node.blockers > 0) {
      ++blockers[node.parent];
    }
    if (Find(node.parent, node.tokens, node.salt) != page)
      return BrokenNode(page, "not found by its tokens");
  }
  for (PageId page = 0; page < static_cast<PageId>(nodes_.size()); ++page) {
    if (nodes_[page].published && nodes_[page].blockers != blockers[page]) {
      return BrokenNode(
          page, absl::StrCat("blocked ", nodes_[page].blockers, " times, not ", blockers[page]));
    }
  }
  if (num_published != num_published_) {
    return absl::InternalError(absl::StrCat("prefix index: ", num_published,
                                            " pages are published, not ", num_published_));
  }
  return CheckList();
}

absl::Status PrefixIndex::CheckList() const {
  int num_evictable = 0;
  for (const Node& node : nodes_) num_evictable += node.published && node.blockers == 0;
  std::vector<bool> seen(nodes_.size());
  int length = 0;
  PageId last = kNoPage;
  for (PageId page = most_recent_; page != kNoPage; last = page, page = nodes_[page].less_recent) {
    const Node& node = nodes_[page];
    if (!node.published || node.blockers > 0 || seen[page] || node.more_recent != last) {
      return BrokenNode(page, "at the wrong place in the order of use");
    }
    if (!IsRoot(node.parent) && nodes_[node.parent].blockers == 0 && !seen[node.parent]) {
      return BrokenNode(page, "used after the page before it");
    }
    seen[page] = true;
    ++length;
  }
  if (length != num_evictable || num_evictable != num_evictable_ || least_recent_ != last) {
    return absl::InternalError(
        absl::StrCat("prefix index: ", num_evictable, " pages can be evicted, but ", length,
                     " are in the order of use; the count is ", num_evictable_));
  }
  return absl::OkStatus();
}

}  // namespace tandem
