// Compares the cache with a model that is too simple to be wrong: texts, a list of published
// prefixes, and linear searches.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

bool IsPrefix(const Tokens& prefix, const Tokens& text) {
  return prefix.size() <= text.size() && std::equal(prefix.begin(), prefix.end(), text.begin());
}

// Several sequences in one cache, each with the text that it holds. The values stored for a token
// are a function of the text up to it. So a check fails if it reads a page of another text, a page
// that was written while it was shared, or a position past the length (NaN).
class World {
 public:
  World(int num_sequences, int num_pages, int page_size,
        PrefixIndex::Hash hash = &PrefixIndex::ChainHash)
      : layout_{.num_layers = 2, .num_kv_heads = 2, .head_dim = 1, .page_size = page_size} {
    cache_ = *PagedKvCache::Create(&backend_, layout_, num_pages);
    cache_->AddObserver(&counts_);
    PagedKvCacheTestPeer(cache_.get()).UseHash(hash);
    for (int i = 0; i < num_sequences; ++i) live_.push_back({cache_->NewSequence(), {}});
  }

  int num_sequences() const { return static_cast<int>(live_.size()); }
  int length(int i) const { return static_cast<int>(live_[i].text.size()); }
  const Tokens& text(int i) const { return live_[i].text; }
  int64_t num_evicted() const { return num_evicted_; }
  int64_t num_copies() const { return num_copies_; }
  int64_t num_hit_tokens() const { return num_hit_tokens_; }

  // ---- Operations; each ends with Check ----
  bool Extend(int i, const Tokens& tokens) {
    ++now_;
    Live& live = live_[i];
    const int before = length(i);
    const int page_size = layout_.page_size;
    const int count = static_cast<int>(tokens.size());
    const bool copies =
        count > 0 && before % page_size != 0 && NumHolders(live.sequence.pages().back()) > 1;
    const int needed = (before + count + page_size - 1) / page_size -
                       (before + page_size - 1) / page_size + copies;
    EXPECT_EQ(live.sequence.PagesToExtend(count), needed);
    const bool expected = needed <= NumAvailable();
    if (expected) Evict(needed - NumFree());
    EXPECT_EQ(live.sequence.Extend(count).ok(), expected);
    if (!expected) return false;
    num_copies_ += copies;
    live.text.insert(live.text.end(), tokens.begin(), tokens.end());
    for (int t = before; t < before + count; ++t) Write(live, t);
    Settle({});
    return true;
  }
  void Truncate(int i, int length) {
    ++now_;
    live_[i].sequence.Truncate(length);
    live_[i].text.resize(length);
    Settle({});
  }
  void Fork(int from, int to) {
    ++now_;
    live_[to] = {live_[from].sequence.Fork(), live_[from].text};  // forks, then drops the old one
    Settle({});
  }
  void Publish(int i) {
    ++now_;
    Live& live = live_[i];
    Tokens committed = live.text;  // the tokens appended below are not cached yet
    committed.resize(committed.size() + now_ % (2 * layout_.page_size), 1);
    cache_->Publish(committed, &live.sequence);
    const int num_full = length(i) / layout_.page_size;
    for (int p = 0; p < num_full; ++p) {
      published_.try_emplace(FirstPages(live.text, p + 1),
                             Published{live.sequence.pages()[p], now_, true});
    }
    Settle(FirstPages(live.text, num_full));
  }
  void StartFrom(int i, const Tokens& prompt) {
    ++now_;
    int hit = 0;
    while ((hit + 1) * layout_.page_size < static_cast<int>(prompt.size()) &&
           published_.count(FirstPages(prompt, hit + 1)) > 0) {
      ++hit;
    }
    live_[i].sequence = cache_->NewSequenceWithPrefix(prompt);
    live_[i].text = FirstPages(prompt, hit);
    num_hit_tokens_ += static_cast<int64_t>(live_[i].text.size());
    Settle({});
  }

  // Compares everything observable.
  void Check() {
    FillFreePages(cache_.get(), std::numeric_limits<float>::quiet_NaN());
    std::vector<const KvSequence*> sequences;
    for (const Live& live : live_) sequences.push_back(&live.sequence);
    const absl::Status status = cache_->CheckIntegrity(sequences);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cache_->num_free_pages(), NumFree());
    EXPECT_EQ(cache_->num_available_pages(), NumAvailable());
    EXPECT_EQ(counts_.copied, num_copies_);
    EXPECT_EQ(backend_.num_copies(), num_copies_ * layout_.num_pieces());
    EXPECT_EQ(counts_.evicted, num_evicted_);
    EXPECT_EQ(PagedKvCacheTestPeer(cache_.get()).num_published(),
              static_cast<int>(published_.size()));
    for (const Live& live : live_) {
      ASSERT_EQ(live.sequence.length(), static_cast<int>(live.text.size()));
      for (int t = 0; t < live.sequence.length(); ++t) ExpectWritten(live, t);
    }
    for (const auto& [prefix, page] : published_) {  // published pages are never written
      const Live reader{KvSequence(), prefix};
      for (int t = static_cast<int>(prefix.size()) - layout_.page_size;
           t < static_cast<int>(prefix.size()); ++t) {
        ExpectStored(reader.text, t, page.page);
      }
    }
  }

  // The state, independent of page numbers and absolute times.
  std::string Canonical() const {
    std::map<PageId, int> names;
    const auto name = [&](PageId page) {
      return names.try_emplace(page, names.size()).first->second;
    };
    std::string state;
    for (const Live& live : live_) {
      for (const TokenId token : live.text) absl::StrAppend(&state, token, ",");
      for (const PageId page : live.sequence.pages()) absl::StrAppend(&state, "p", name(page));
      absl::StrAppend(&state, "|");
    }
    std::set<int64_t> times;
    for (const auto& [prefix, page] : published_) times.insert(page.blocked ? 0 : page.time);
    for (const auto& [prefix, page] : published_) {
      const auto rank = std::distance(times.begin(), times.find(page.blocked ? 0 : page.time));
      for (const TokenId token : prefix) absl::StrAppend(&state, token, ",");
      absl::StrAppend(&state, "p", name(page.page), page.blocked ? "b" : "t", rank, ";");
    }
    return state;
  }

 private:
  struct Live {
    KvSequence sequence;
    Tokens text;
  };
  struct Published {
    PageId page;
    int64_t time;  // of the operation that last used or released it
    bool blocked;  // a sequence uses it or one that follows it
  };

  Tokens FirstPages(const Tokens& text, int count) const {
    return Tokens(text.begin(), text.begin() + count * layout_.page_size);
  }
  bool IsUsed(PageId page) const {
    for (const Live& live : live_) {
      if (std::count(live.sequence.pages().begin(), live.sequence.pages().end(), page)) return true;
    }
    return false;
  }
  int NumHolders(PageId page) const {
    int count = 0;
    for (const Live& live : live_) {
      count += std::count(live.sequence.pages().begin(), live.sequence.pages().end(), page);
    }
    for (const auto& [prefix, published] : published_) count += published.page == page;
    return count;
  }
  int NumFree() const {
    std::set<PageId> held;
    for (const Live& live : live_) {
      held.insert(live.sequence.pages().begin(), live.sequence.pages().end());
    }
    for (const auto& [prefix, published] : published_) held.insert(published.page);
    return cache_->num_pages() - static_cast<int>(held.size());
  }
  int NumAvailable() const {
    int count = NumFree();
    for (const auto& [prefix, published] : published_) count += !published.blocked;
    return count;
  }

  void Evict(int count) {
    for (; count > 0; --count, ++num_evicted_) {
      auto victim = published_.end();
      for (auto it = published_.begin(); it != published_.end(); ++it) {
        if (it->second.blocked) continue;
        const auto age = [](const auto& entry) {  // within one operation, longer prefixes go first
          return std::pair(entry->second.time, -static_cast<int64_t>(entry->first.size()));
        };
        if (victim == published_.end() || age(it) < age(victim)) victim = it;
      }
      ASSERT_NE(victim, published_.end());
      for (const auto& [prefix, other] : published_) {
        EXPECT_TRUE(prefix == victim->first || !IsPrefix(victim->first, prefix)) << "not a leaf";
      }
      published_.erase(victim);
    }
  }
  // Updates after an operation which pages are blocked, and when those that are not were last used.
  // `published` is the text that the operation published, if any.
  void Settle(const Tokens& published) {
    for (auto& [prefix, page] : published_) {
      bool blocked = false;
      for (const auto& [other, other_page] : published_) {
        blocked = blocked || (IsPrefix(prefix, other) && IsUsed(other_page.page));
      }
      if ((page.blocked || IsPrefix(prefix, published)) && !blocked) page.time = now_;
      page.blocked = blocked;
    }
    Check();
  }

  // Address of a position's element in a page. `half` is 0 for keys and 1 for values.
  float* Place(int layer, int half, int head, PageId page, int t) const {
    const PagedKvView view = cache_->LayerView(layer);
    return static_cast<float*>(half == 0 ? view.keys : view.values) + view.BlockOf(page, head) +
           t % view.page_size;
  }
  template <typename Body>
  void ForEachPlace(PageId page, int t, const Body& body) const {
    for (int i = 0; i < 8; ++i) body(Place(i / 4, i / 2 % 2, i % 2, page, t), i);
  }
  static uint32_t HashUpTo(const Tokens& text, int t) {
    uint32_t hash = 1;
    for (int i = 0; i <= t; ++i) hash = hash * 31 + static_cast<uint32_t>(text[i]);
    return hash % (1 << 20);
  }
  void Write(const Live& live, int t) {
    const PageId page = live.sequence.pages()[t / layout_.page_size];
    EXPECT_EQ(PagedKvCacheTestPeer(cache_.get()).num_refs(page), 1) << "writes a shared page";
    ForEachPlace(page, t, [&](float* place, int i) {
      *place = static_cast<float>(HashUpTo(live.text, t) * 8 + i);
    });
  }
  void ExpectStored(const Tokens& text, int t, PageId page) const {
    ForEachPlace(page, t, [&](const float* place, int i) {
      EXPECT_EQ(*place, static_cast<float>(HashUpTo(text, t) * 8 + i)) << "position " << t;
    });
  }
  void ExpectWritten(const Live& live, int t) const {
    ExpectStored(live.text, t, live.sequence.pages()[t / layout_.page_size]);
  }

  KvLayout layout_;
  MemoryBackend backend_;
  PageCounts counts_;
  std::unique_ptr<PagedKvCache> cache_;
  std::vector<Live> live_;
  std::map<Tokens, Published> published_;  // by the whole text up to the end of the page
  int64_t now_ = 0;
  int64_t num_evicted_ = 0;
  int64_t num_copies_ = 0;
  int64_t num_hit_tokens_ = 0;
};

// ---- Every state within a few operations ----

constexpr int kNumSmallOperations = 20;

void DoSmallOperation(World* world, int operation) {
  const int i = operation % 2;
  switch (operation / 2) {
    case 0:
      world->Extend(i, {1});
      break;
    case 1:
      world->Extend(i, {2, 1});
      break;
    case 2:
      world->Extend(i, {1, 1, 1, 1});
      break;
    case 3:
      world->Truncate(i, world->length(i) / 2);
      break;
    case 4:
      world->Truncate(i, std::max(0, world->length(i) - 1));
      break;
    case 5:
      world->Truncate(i, 0);
      break;
    case 6:
      world->Fork(i, 1 - i);
      break;
    case 7:
      world->Publish(i);
      break;
    case 8:
      world->StartFrom(i, {1, 1, 1, 1, 1});
      break;
    case 9:
      world->StartFrom(i, {2, 1, 1, 1, 2});
      break;
  }
}

TEST(KvModel, EveryReachableStateOfASmallCacheIsCorrect) {
  constexpr int kDepth = 7;
  std::deque<std::vector<int>> paths = {{}};
  std::set<std::string> seen;
  int64_t num_evicted = 0, num_copies = 0, num_hits = 0;
  while (!paths.empty() && !HasFailure()) {
    const std::vector<int> path = paths.front();
    paths.pop_front();
    for (int operation = 0; operation < kNumSmallOperations; ++operation) {
      World world(2, 4, 2);
      for (const int step : path) DoSmallOperation(&world, step);
      DoSmallOperation(&world, operation);
      num_evicted += world.num_evicted();
      num_copies += world.num_copies();
      num_hits += world.num_hit_tokens();
      const bool is_new = seen.insert(world.Canonical()).second;
      if (!is_new || path.size() + 1 >= kDepth) continue;
      paths.push_back(path);
      paths.back().push_back(operation);
    }
  }
  // The walk covered many states, evictions, copies and hits.
  EXPECT_GT(seen.size(), 5000u);
  EXPECT_GT(num_evicted, 1000);
  EXPECT_GT(num_copies, 1000);
  EXPECT_GT(num_hits, 1000);
}

// ---- Long walks ----

// Weak hashes, so that most keys collide.
uint64_t ConstantHash(uint64_t, absl::Span<const TokenId>) { return 7; }
uint64_t FirstTokenHash(uint64_t, absl::Span<const TokenId> tokens) { return tokens[0] & 1; }

struct Walk {
  int num_sequences;
  int num_pages;
  int page_size;
  int vocab_size;
  PrefixIndex::Hash hash;
};

void PrintTo(const Walk& walk, std::ostream* out) {
  *out << walk.num_sequences << " sequences, " << walk.num_pages << " pages of " << walk.page_size;
}

class KvModelWalk : public ::testing::TestWithParam<Walk> {};

TEST_P(KvModelWalk, IsCorrectAfterEveryOperation) {
  const Walk& walk = GetParam();
  std::mt19937 random(walk.num_pages * 1000 + walk.page_size);
  const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  const auto tokens = [&](int count) {
    Tokens result(count);
    for (TokenId& token : result) token = below(walk.vocab_size);
    return result;
  };
  World world(walk.num_sequences, walk.num_pages, walk.page_size, walk.hash);
  int num_failed = 0;
  for (int step = 0; step < 5'000 && !HasFailure(); ++step) {
    const int i = below(walk.num_sequences);
    const int other = below(walk.num_sequences);
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        num_failed += !world.Extend(i, tokens(below(2 * walk.page_size + 2)));
        break;
      case 3:  // a round of speculation: draft tokens, any number of which are kept
        if (world.Extend(i, tokens(5))) world.Truncate(i, world.length(i) - below(6));
        break;
      case 4:
        world.Truncate(i, below(world.length(i) + 1));
        break;
      case 5:
        world.Truncate(i, 0);
        break;
      case 6:
        if (i != other) world.Fork(i, other);
        break;
      case 7:
      case 8:
      case 9:
        world.Publish(i);
        break;
      case 10: {  // continues a conversation, or starts a text that shares a prefix with another
        Tokens prompt = world.text(other);
        prompt.resize(below(static_cast<int>(prompt.size()) + 1));
        const Tokens more = tokens(below(walk.page_size + 2));
        prompt.insert(prompt.end(), more.begin(), more.end());
        world.StartFrom(i, prompt);
        break;
      }
      case 11:
        world.StartFrom(i, tokens(below(4 * walk.page_size)));
        break;
    }
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(world.num_evicted(), 0);
  EXPECT_EQ(world.num_copies() > 0, walk.page_size > 1);  // pages of 1 are never partly filled
  EXPECT_GT(world.num_hit_tokens(), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, KvModelWalk,
                         ::testing::Values(Walk{3, 8, 2, 2, &PrefixIndex::ChainHash},
                                           Walk{5, 20, 4, 2, &PrefixIndex::ChainHash},
                                           Walk{2, 10, 1, 2, &PrefixIndex::ChainHash},
                                           Walk{4, 12, 3, 1, &PrefixIndex::ChainHash},
                                           Walk{4, 12, 3, 2, &ConstantHash},
                                           Walk{4, 16, 2, 3, &FirstTokenHash}));

}  // namespace
}  // namespace tandem
