#include "draft/prediction.h"

#include <algorithm>

#include "base/status_macros.h"

namespace tandem {

PredictedText::PredictedText(std::string text, std::vector<TokenId> tokens)
    : text_(std::move(text)), tokens_(std::move(tokens)) {
  for (size_t i = 0; i < places_.size(); ++i) {
    const size_t length = kMinRun + i;
    for (size_t place = length; place <= tokens_.size(); ++place) {
      places_[i].push_back(static_cast<uint32_t>(place));
    }
    // Stable: places of equal runs stay in order.
    std::stable_sort(places_[i].begin(), places_[i].end(), [&](uint32_t a, uint32_t b) {
      return RunBefore(a, length) < RunBefore(b, length);
    });
  }
}

size_t PredictedText::Find(absl::Span<const TokenId> output, size_t next) const {
  for (size_t length = std::min(kLongestRun, output.size()); length >= kMinRun; --length) {
    const absl::Span<const TokenId> run = output.last(length);
    const std::vector<uint32_t>& places = places_[length - kMinRun];
    const auto it = std::partition_point(places.begin(), places.end(), [&](uint32_t place) {
      const absl::Span<const TokenId> at = RunBefore(place, length);
      return at < run || (at == run && place < next);
    });
    if (it != places.end() && RunBefore(*it, length) == run) return *it;
    if (it != places.begin() && RunBefore(*(it - 1), length) == run) return *(it - 1);
  }
  return 0;
}

absl::Span<const TokenId> Prediction::ContinuationOf(absl::Span<const TokenId> output) {
  if (text_ == nullptr) return {};
  const absl::Span<const TokenId> tokens = text_->tokens();
  for (; num_followed_ < output.size(); ++num_followed_) {
    if (!has_parted_ && next_ < tokens.size() && tokens[next_] == output[num_followed_]) {
      ++next_;
      continue;
    }
    const size_t found = text_->Find(output.first(num_followed_ + 1), next_);
    has_parted_ = found == 0;
    if (!has_parted_) next_ = found;
  }
  return has_parted_ ? absl::Span<const TokenId>() : tokens.subspan(next_);
}

absl::StatusOr<std::shared_ptr<const PredictedText>> PredictedTexts::Get(const Tokenizer& tokenizer,
                                                                         std::string_view text,
                                                                         int max_output,
                                                                         const CacheSalt& salt) {
  if (text.size() > MaxBytes(max_output)) {
    size_t size = MaxBytes(max_output);
    while (size > 0 && (text[size] & 0xC0) == 0x80) --size;  // to the start of a character
    text = text.substr(0, size);
  }
  {
    const absl::MutexLock lock(&mutex_);
    std::erase_if(texts_, [](const Known& known) { return known.text.expired(); });
    for (const Known& known : texts_) {
      std::shared_ptr<const PredictedText> found = known.text.lock();
      if (IsSameSalt(known.salt, salt) && found != nullptr && found->text() == text) return found;
    }
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.Encode(text, SpecialTokens::kPlain));
  auto made = std::make_shared<const PredictedText>(std::string(text), std::move(tokens));
  const absl::MutexLock lock(&mutex_);
  texts_.push_back({.salt = salt, .text = made});
  return made;
}

}  // namespace tandem
