// For tests: a cache of pages with states, and a text that a second such cache does not have.
#ifndef TANDEM_KVCACHE_STORE_STORED_CACHE_TESTING_H_
#define TANDEM_KVCACHE_STORE_STORED_CACHE_TESTING_H_

#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {

struct CacheWithStates {
  static constexpr KvLayout kLayout{
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .page_size = 4, .state_size = 3};
  static constexpr int kNumPages = 5;  // of the text

  MemoryBackend backend{};
  std::unique_ptr<PagedKvCache> cache = *PagedKvCache::Create(&backend, kLayout, kNumPages + 3);
  // Fills kNumPages pages, plus one token.
  std::vector<TokenId> text = [] {
    std::vector<TokenId> tokens(kNumPages * kLayout.page_size + 1);
    std::iota(tokens.begin(), tokens.end(), 100);
    return tokens;
  }();

  absl::Span<const TokenId> whole_pages() const {
    return absl::MakeConstSpan(text).first(text.size() - 1);
  }
  // Page i of the text is words of i + .5, and a state of i + .25.
  static std::vector<float> WordsOf(int i) {
    const size_t num_words = kLayout.page_bytes() / sizeof(float);
    std::vector<float> words(num_words, static_cast<float>(i) + 0.5f);
    for (size_t w = num_words - kLayout.state_size; w < num_words; ++w) {
      words[w] = static_cast<float>(i) + 0.25f;
    }
    return words;
  }
  void PublishText() {
    KvSequence sequence = cache->NewSequence();
    TANDEM_CHECK(sequence.Extend(static_cast<int>(whole_pages().size())).ok());
    for (int i = 0; i < kNumPages; ++i) {
      const std::vector<float> words = WordsOf(i);
      WritePage(cache.get(), sequence.pages()[i],
                {reinterpret_cast<const std::byte*>(words.data()), kLayout.page_bytes()});
    }
    cache->Publish(whole_pages(), &sequence);
  }
  // Whether the text is published, with every page's words and state.
  bool HasText() const {
    const KvSequence held = cache->HoldPublished(whole_pages(), 0, nullptr);
    bool holds_words = held.pages().size() == kNumPages;
    for (int i = 0; holds_words && i < kNumPages; ++i) {
      std::vector<float> words(WordsOf(i).size());
      ReadPage(*cache, held.pages()[i],
               {reinterpret_cast<std::byte*>(words.data()), kLayout.page_bytes()});
      holds_words = words == WordsOf(i) && *cache->StateOf(held.pages()[i]) == words.back();
    }
    return holds_words;
  }
};

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_STORED_CACHE_TESTING_H_
