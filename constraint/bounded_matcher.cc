#include "constraint/bounded_matcher.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <utility>

namespace tandem {

StringBounds::StringBounds(std::vector<LengthRanges> lengths, const std::vector<std::string>& texts)
    : lengths_(std::move(lengths)) {
  num_characters_.reserve(texts.size());
  for (size_t v = 0; v < texts.size(); ++v) {
    StringProgress string;
    bool has_quote = false;
    for (const char byte : texts[v]) {
      has_quote |= byte == '"';
      if (!string.has_ended()) string.Add(byte);
    }
    if (has_quote) tokens_with_quotes_.push_back(static_cast<TokenId>(v));
    num_characters_.push_back(has_quote ? -1 : static_cast<int>(string.num_characters()));
    max_characters_ = std::max(max_characters_, num_characters_.back());
  }
}

BoundedMatcher::BoundedMatcher(const xgrammar::CompiledGrammar& grammar,
                               const std::vector<int>& end_tokens,
                               std::shared_ptr<const StringBounds> bounds)
    : matcher_(grammar, end_tokens),
      bounds_(std::move(bounds)),
      texts_(&grammar.GetTokenizerInfo().GetDecodedVocab()),
      grammar_(grammar) {}

BoundedMatcher BoundedMatcher::Fork() const {
  BoundedMatcher fork = *this;
  fork.matcher_ = matcher_.Fork();
  return fork;
}

int BoundedMatcher::CurrentMark() const {
  const std::optional<float> mark = matcher_.GetTemperature();
  return mark.has_value() && bounds_->HasMark(static_cast<int>(*mark)) ? static_cast<int>(*mark)
                                                                       : 0;
}

// Byte by byte, because rules with marks begin and end within. False, and nothing changes, if they
// may not come next.
bool BoundedMatcher::AcceptBytes(const std::string& text, std::vector<Place>* places) {
  Place place = steps_.empty() ? Place() : steps_.back().place;
  for (const char byte : text) {
    bool may_come = true;
    if (place.mark > 0) {
      place.string.Add(byte);
      may_come = AreWithin(bounds_->OfMark(place.mark), place.string);
    }
    if (!may_come || !matcher_.AcceptString(std::string(1, byte))) {
      matcher_.Rollback(static_cast<int>(places->size()));
      return false;
    }
    const int mark = CurrentMark();
    if (mark != place.mark || place.string.has_ended()) place = {.mark = mark};
    places->push_back(place);
  }
  return true;
}

bool BoundedMatcher::Accept(TokenId token) {
  Step step{.num_steps = 1};
  if (bounds_ != nullptr && token >= 0 && static_cast<size_t>(token) < texts_->size()) {
    if (!steps_.empty()) step.place = steps_.back().place;
    if (bounds_->HasQuote(token)) {
      std::vector<Place> places;
      if (!AcceptBytes((*texts_)[token], &places)) return false;
      steps_.push_back({.num_steps = static_cast<int>(places.size()), .place = places.back()});
      return true;
    }
    if (step.place.mark > 0) {
      for (const char byte : (*texts_)[token]) step.place.string.Add(byte);
      if (!AreWithin(bounds_->OfMark(step.place.mark), step.place.string)) return false;
    }
  }
  if (!matcher_.AcceptToken(token)) return false;
  steps_.push_back(step);
  return true;
}

void BoundedMatcher::Undo() {
  matcher_.Rollback(steps_.back().num_steps);
  steps_.pop_back();
}

bool BoundedMatcher::MayCome(TokenId token) {
  std::vector<Place> places;
  if (!AcceptBytes((*texts_)[token], &places)) return false;
  matcher_.Rollback(static_cast<int>(places.size()));
  return true;
}

// Those that would make the string at hand too long, and do not end it.
void BoundedMatcher::ClearLongTokens(absl::Span<uint32_t> mask) const {
  const Place& place = steps_.back().place;
  const int64_t max = bounds_->OfMark(place.mark).back().second;
  const int64_t room = max - place.string.num_characters();
  if (max < 0 || room >= bounds_->max_characters()) return;
  const std::vector<int>& num_characters = bounds_->num_characters();
  for (size_t v = 0; v < num_characters.size(); ++v) {
    if (num_characters[v] <= 0 || (mask[v / 32] >> (v % 32) & 1) == 0) continue;
    bool is_too_long = num_characters[v] > room;
    if (!place.string.is_between_characters()) {
      StringProgress string = place.string;
      for (const char byte : (*texts_)[v]) string.Add(byte);
      is_too_long = string.num_characters() > max;
    }
    if (is_too_long) mask[v / 32] &= ~(uint32_t{1} << (v % 32));
  }
}

void BoundedMatcher::FillMask(absl::Span<uint32_t> mask) {
  auto size = static_cast<int64_t>(mask.size());
  DLTensor tensor{.data = mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &size,
                  .strides = nullptr,
                  .byte_offset = 0};
  matcher_.FillNextTokenBitmask(&tensor);
  if (bounds_ == nullptr) return;
  if (!steps_.empty() && steps_.back().place.mark > 0) ClearLongTokens(mask);
  for (const TokenId token : bounds_->tokens_with_quotes()) {
    const uint32_t bit = uint32_t{1} << (token % 32);
    if ((mask[token / 32] & bit) != 0 && !MayCome(token)) mask[token / 32] &= ~bit;
  }
}

std::string BoundedMatcher::Forced() {
  // A string is as long as it wants to be.
  if (!steps_.empty() && steps_.back().place.mark > 0) return "";
  return matcher_.FindJumpForwardString();
}

}  // namespace tandem
