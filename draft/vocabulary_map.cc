#include "draft/vocabulary_map.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/hash_map.h"

namespace tandem {
namespace {

// The longest token tried when a text is cut into tokens. It keeps the time for a file of huge
// tokens linear in its size; words are shorter.
constexpr size_t kMaxBytesPerPiece = 64;

enum class Kind : char {
  kText,     // bytes, as the tokenizer writes text
  kByte,     // a byte of a character without a token of its own
  kSpecial,  // a control token; its bytes are a name
};

// The meaning of a token.
struct TokenText {
  Kind kind = Kind::kText;
  std::string bytes;

  bool operator==(const TokenText& other) const {
    return kind == other.kind && bytes == other.bytes;
  }
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const TokenText& text) {
    return Hash::combine(std::move(hash), text.kind, text.bytes);
  }
};

// Returns nullopt for ids without a token and for tokens without text.
std::optional<TokenText> TextOf(const Vocabulary& vocabulary, TokenId id) {
  const Tokenizer& tokenizer = *vocabulary.tokenizer;
  if (id >= vocabulary.size) return std::nullopt;
  const auto text = tokenizer.TextOf(id, /*is_first=*/false);
  if (!text.has_value() || text->bytes.empty()) return std::nullopt;
  if (tokenizer.IsSpecial(id)) return TokenText{Kind::kSpecial, std::string(text->bytes)};
  if (text->is_byte) return TokenText{Kind::kByte, std::string(text->bytes)};
  return TokenText{Kind::kText, tokenizer.text_rules().separator + std::string(text->bytes)};
}

int NumTokens(const Vocabulary& vocabulary) {
  return std::min(vocabulary.size, vocabulary.tokenizer->vocab_size());
}

// Returns the tokens that the tokenizer puts before every text.
std::vector<TokenId> StartTokens(const Tokenizer& tokenizer) {
  constexpr TokenId kTextItself = -1;
  std::vector<TokenId> ids = tokenizer.WithTemplate({kTextItself});
  ids.erase(std::find(ids.begin(), ids.end(), kTextItself), ids.end());
  return ids;
}

using Texts = std::vector<std::optional<TokenText>>;  // [vocabulary size]

Texts TextsOf(const Vocabulary& vocabulary) {
  Texts texts(vocabulary.size);
  for (TokenId id = 0; id < NumTokens(vocabulary); ++id) texts[id] = TextOf(vocabulary, id);
  return texts;
}

bool IsText(const std::optional<TokenText>& text) {
  return text.has_value() && text->kind != Kind::kSpecial;
}

// Finds the draft's tokens by their meaning, and writes text with them.
class DraftWriter {
 public:
  DraftWriter(const Vocabulary& draft, const Texts& texts) : draft_(draft) {
    for (TokenId id = 0; id < draft.size; ++id) {
      if (!texts[id].has_value()) continue;
      ids_.emplace(*texts[id], id);  // keeps the lowest id of equal tokens
      if (IsText(texts[id])) longest_ = std::max(longest_, texts[id]->bytes.size());
    }
    longest_ = std::min(longest_, kMaxBytesPerPiece);
  }

  TokenId Find(const TokenText& text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? -1 : it->second;
  }

  // Returns the tokens that the draft's tokenizer makes of these bytes in the middle of a text. If
  // they would decode to other bytes, or the draft lacks one of them, uses as few tokens as
  // possible.
  std::vector<TokenId> Write(const std::string& bytes) const {
    const auto encoded = draft_.tokenizer->Encode(bytes, SpecialTokens::kPlain);
    if (encoded.ok() && BytesOf(*encoded) == bytes) return *encoded;
    return WriteInFewTokens(bytes);
  }

 private:
  // Returns nullopt if one of the ids is not a text token of the draft.
  std::optional<std::string> BytesOf(const std::vector<TokenId>& ids) const {
    std::string bytes;
    for (const TokenId id : ids) {
      const std::optional<TokenText> text = TextOf(draft_, id);
      if (!IsText(text)) return std::nullopt;
      bytes += text->bytes;
    }
    return bytes;
  }

  TokenId FindBytes(std::string_view bytes) const {
    const TokenId id = Find({Kind::kText, std::string(bytes)});
    return id >= 0 || bytes.size() > 1 ? id : Find({Kind::kByte, std::string(bytes)});
  }

  // Finds the fewest tokens from each byte to the end, backwards. Among equal counts the longest
  // first token wins.
  std::vector<TokenId> WriteInFewTokens(std::string_view bytes) const {
    constexpr int kImpossible = std::numeric_limits<int>::max();
    struct Step {
      int num_tokens = kImpossible;
      TokenId first = -1;
      size_t next = 0;
    };
    std::vector<Step> steps(bytes.size() + 1);
    steps.back().num_tokens = 0;
    for (size_t at = bytes.size(); at-- > 0;) {
      for (size_t end = std::min(bytes.size(), at + longest_); end > at; --end) {
        if (steps[end].num_tokens == kImpossible) continue;
        if (steps[end].num_tokens + 1 >= steps[at].num_tokens) continue;
        const TokenId id = FindBytes(bytes.substr(at, end - at));
        if (id >= 0) steps[at] = {steps[end].num_tokens + 1, id, end};
      }
    }
    if (steps[0].num_tokens == kImpossible) return {VocabularyMap::kUnreadable};
    std::vector<TokenId> ids;
    for (size_t at = 0; at < bytes.size(); at = steps[at].next) ids.push_back(steps[at].first);
    return ids;
  }

  const Vocabulary& draft_;
  HashMap<TokenText, TokenId> ids_;
  size_t longest_ = 0;
};

// Collects pairs. Each token is in at most one of them.
class Pairing {
 public:
  Pairing(int target_size, int draft_size)
      : draft_of_(target_size, -1), is_taken_(draft_size, false) {}

  bool IsPaired(TokenId target) const { return draft_of_[target] >= 0; }
  TokenId DraftOf(TokenId target) const { return draft_of_[target]; }
  bool Add(TokenId target, TokenId draft) {
    if (draft < 0 || is_taken_[draft] || IsPaired(target)) return false;
    draft_of_[target] = draft;
    is_taken_[draft] = true;
    return true;
  }
  // Pairs tokens with the same role but different names, in order.
  void AddByPart(absl::Span<const TokenId> targets, absl::Span<const TokenId> drafts) {
    auto draft = drafts.begin();
    const auto is_free = [this](TokenId id) {
      return id < static_cast<TokenId>(is_taken_.size()) && !is_taken_[id];
    };
    for (const TokenId target : targets) {
      if (target >= static_cast<TokenId>(draft_of_.size()) || IsPaired(target)) continue;
      draft = std::find_if(draft, drafts.end(), is_free);
      if (draft == drafts.end()) return;
      Add(target, *draft);
    }
  }
  std::vector<VocabularyMap::Pair> Pairs() const {
    std::vector<VocabularyMap::Pair> pairs;
    for (TokenId id = 0; id < static_cast<TokenId>(draft_of_.size()); ++id) {
      if (IsPaired(id)) pairs.push_back({id, draft_of_[id]});
    }
    return pairs;
  }

 private:
  std::vector<TokenId> draft_of_;
  std::vector<bool> is_taken_;
};

}  // namespace

VocabularyMap::VocabularyMap(const Vocabulary& target, const Vocabulary& draft) {
  const Texts texts = TextsOf(target);
  const Texts draft_texts = TextsOf(draft);
  const DraftWriter writer(draft, draft_texts);
  Pairing pairing(target.size, draft.size);
  for (TokenId id = 0; id < target.size; ++id) {
    if (texts[id].has_value()) pairing.Add(id, writer.Find(*texts[id]));
  }
  // A byte token in one vocabulary may be a text token in the other.
  for (TokenId id = 0; id < target.size; ++id) {
    if (!IsText(texts[id])) continue;
    const Kind other = texts[id]->kind == Kind::kText ? Kind::kByte : Kind::kText;
    pairing.Add(id, writer.Find({other, texts[id]->bytes}));
  }
  pairing.AddByPart(target.end_tokens, draft.end_tokens);
  pairing.AddByPart(StartTokens(*target.tokenizer), StartTokens(*draft.tokenizer));
  pairs_ = pairing.Pairs();
  const auto count_of = [&](size_t min_bytes) {
    const auto counts = [min_bytes](const std::optional<TokenText>& text) {
      return IsText(text) && text->bytes.size() >= min_bytes;
    };
    const auto is_counted = [&](const Pair& pair) { return counts(texts[pair.target]); };
    return Counts{.target = static_cast<int>(absl::c_count_if(texts, counts)),
                  .draft = static_cast<int>(absl::c_count_if(draft_texts, counts)),
                  .paired = static_cast<int>(absl::c_count_if(pairs_, is_counted))};
  };
  counts_ = count_of(1);
  long_counts_ = count_of(2);

  std::vector<std::vector<TokenId>> readings(target.size);
  for (TokenId id = 0; id < target.size; ++id) {
    if (pairing.IsPaired(id)) {
      readings[id] = {pairing.DraftOf(id)};
    } else if (IsText(texts[id])) {
      readings[id] = writer.Write(texts[id]->bytes);
    } else if (!target.tokenizer->TextOf(id, /*is_first=*/false).has_value()) {
      readings[id] = {kUnreadable};
    }
  }
  SetReadings(readings);
}

VocabularyMap::VocabularyMap(std::vector<Pair> pairs,
                             const std::vector<std::vector<TokenId>>& readings)
    : pairs_(std::move(pairs)) {
  SetReadings(readings);
}

void VocabularyMap::SetReadings(const std::vector<std::vector<TokenId>>& readings) {
  ends_ = {0};
  for (const std::vector<TokenId>& reading : readings) {
    readings_.insert(readings_.end(), reading.begin(), reading.end());
    ends_.push_back(static_cast<int>(readings_.size()));
  }
}

bool VocabularyMap::HasSameIds(const Vocabulary& target, const Vocabulary& draft) {
  const int shared = std::max(NumTokens(target), std::min(NumTokens(draft), target.size));
  for (TokenId id = 0; id < shared; ++id) {
    if (TextOf(target, id) != TextOf(draft, id)) return false;
  }
  return true;
}

void VocabularyMap::ToTargetRow(absl::Span<const float> draft_logits,
                                std::vector<float>* row) const {
  row->assign(target_size(), -std::numeric_limits<float>::infinity());
  for (const Pair& pair : pairs_) {
    const auto draft = static_cast<size_t>(pair.draft);
    if (draft < draft_logits.size()) (*row)[pair.target] = draft_logits[draft];
  }
}

}  // namespace tandem
