#include "draft/ngram_index.h"

#include <algorithm>

#include "base/split_mix.h"

namespace tandem {
namespace {

// Hashes of the runs that end behind text[end - 1], the shortest first.
class RunHashes {
 public:
  RunHashes(absl::Span<const TokenId> text, int end) : text_(text), end_(end) {}
  int longest() const { return std::min(end_, NgramIndex::kLongestKey); }
  // Of the run that is one longer than the last.
  uint64_t Next() {
    const auto token = static_cast<uint32_t>(text_[end_ - ++length_]);
    return hash_ = SplitMix64(hash_ + token);
  }

 private:
  absl::Span<const TokenId> text_;
  int end_;
  int length_ = 0;
  uint64_t hash_ = 0;
};

// How many tokens before `a` and before `b` < a are the same.
int CommonLength(absl::Span<const TokenId> text, int a, int b) {
  const int most = std::min(b, NgramIndex::kLongestMatch);
  int length = 0;
  while (length < most && text[a - 1 - length] == text[b - 1 - length]) ++length;
  return length;
}

}  // namespace

void NgramIndex::Extend(absl::Span<const TokenId> text) {
  for (; length_ < static_cast<int>(text.size()); ++length_) {
    // The token at length_ is how the text goes on behind the runs that end before it.
    RunHashes hashes(text, length_);
    for (int n = 1; n <= hashes.longest(); ++n) {
      Places& places = places_[hashes.Next()];
      places.before = places.latest;
      places.latest = length_;
    }
  }
}

void NgramIndex::Clear() {
  places_.clear();
  length_ = 0;
}

NgramIndex::Match NgramIndex::Find(absl::Span<const TokenId> text) const {
  const int end = static_cast<int>(text.size());
  Match best;
  RunHashes hashes(text, end);
  for (int n = 1; n <= hashes.longest(); ++n) {
    const auto it = places_.find(hashes.Next());
    if (it == places_.end()) break;  // what a longer run follows, its end follows
    const Places& places = it->second;
    const int length = CommonLength(text, end, places.latest);
    if (length < n) continue;  // other tokens of the same hash
    best = {.length = length,
            .next = places.latest,
            .is_repeated = places.before >= 0 && text[places.before] == text[places.latest]};
  }
  return best;
}

}  // namespace tandem
