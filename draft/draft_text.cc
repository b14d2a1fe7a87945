#include "draft/draft_text.h"

#include <algorithm>

#include "tandem/draft_tokens.h"

namespace tandem {

DraftText::DraftText(absl::Span<const std::vector<TokenId>> texts) {
  size_t size = 0;
  for (const std::vector<TokenId>& text : texts) size += text.size() + 1;
  tokens_.reserve(size);
  places_.reserve(size);
  for (const std::vector<TokenId>& text : texts) {
    for (size_t i = kShortestMatch; i < text.size(); ++i) {
      places_.push_back(static_cast<uint32_t>(tokens_.size() + i));
    }
    tokens_.insert(tokens_.end(), text.begin(), text.end());
    tokens_.push_back(kEnd);
    num_tokens_ += static_cast<int64_t>(text.size());
  }
  const auto is_before = [this](uint32_t a, uint32_t b) {
    for (uint32_t length = 1; length <= kLongestMatch; ++length) {
      // The beginning of the first text is like the end of one before it.
      const TokenId x = length <= a ? tokens_[a - length] : kEnd;
      const TokenId y = length <= b ? tokens_[b - length] : kEnd;
      if (x != y) return x < y;
      if (x == kEnd) break;
    }
    return a < b;
  };
  std::sort(places_.begin(), places_.end(), is_before);
  places_.shrink_to_fit();
}

int DraftText::CommonLength(absl::Span<const TokenId> context, size_t place) const {
  const size_t most = std::min({context.size(), place, size_t{kLongestMatch}});
  size_t length = 0;
  while (length < most && tokens_[place - 1 - length] == context[context.size() - 1 - length]) {
    ++length;
  }
  return static_cast<int>(length);
}

DraftText::Match DraftText::Find(absl::Span<const TokenId> context) const {
  const auto is_before = [this, context](uint32_t place, int /*end*/) {
    const auto length = static_cast<size_t>(CommonLength(context, place));
    if (length == kLongestMatch || length == context.size()) return false;
    const TokenId before = length < place ? tokens_[place - 1 - length] : kEnd;
    return before < context[context.size() - 1 - length];
  };
  // The longest matches are on both sides of the place at which `context` would be.
  const auto after = std::lower_bound(places_.begin(), places_.end(), 0, is_before);
  Match best;
  const auto consider = [&](uint32_t place) {
    const int length = CommonLength(context, place);
    if (length < kShortestMatch) return;
    if (length > best.length) {
      const bool is_same = best.length > 0 && tokens_[place] == tokens_[best.next];
      best = {.length = length, .next = place, .is_repeated = is_same};
    } else {
      best.is_repeated = best.is_repeated || tokens_[place] == tokens_[best.next];
    }
  };
  if (after != places_.end()) consider(*after);
  if (after != places_.end() && after + 1 != places_.end()) consider(*(after + 1));
  if (after != places_.begin()) consider(*(after - 1));
  return best;
}

absl::Span<const TokenId> DraftText::From(size_t place) const {
  const auto begin = tokens_.begin() + static_cast<ptrdiff_t>(place);
  // No draft is longer, so the rest of a long text is not searched for its end.
  const auto most = std::min<ptrdiff_t>(kMaxDraftTokens, tokens_.end() - begin);
  const auto end = std::find(begin, begin + most, kEnd);
  return {tokens_.data() + place, static_cast<size_t>(end - begin)};
}

int64_t DraftText::bytes() const {
  return static_cast<int64_t>(sizeof(*this) + tokens_.capacity() * sizeof(TokenId) +
                              places_.capacity() * sizeof(uint32_t));
}

DraftTextMatch FindInTexts(const DraftTextList& texts, absl::Span<const TokenId> context) {
  DraftTextMatch best;
  for (const std::shared_ptr<const DraftText>& text : texts) {
    const DraftText::Match match = text->Find(context);
    if (match.length > best.match.length) best = {.text = text.get(), .match = match};
  }
  return best;
}

}  // namespace tandem
