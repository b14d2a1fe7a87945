#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "tandem/detokenizer.h"
#include "tandem/field_error.h"

namespace tandem {

BpeTokenizer::BpeTokenizer(Parts parts)
    : normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      encoder_(std::move(parts.encoder)),
      decoder_(std::move(parts.decoder)),
      entries_(encoder_.tokens().size()) {}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::New(Parts parts) {
  std::vector<AddedToken> added_tokens = std::move(parts.added_tokens);
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(parts)));
  const std::vector<std::string>& tokens = tokenizer->encoder_.tokens();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    RETURN_IF_ERROR(
        tokenizer->AddEntry(static_cast<TokenId>(id), tokens[id], /*is_special=*/false));
  }
  RETURN_IF_ERROR(tokenizer->AddTokens(std::move(added_tokens)));
  return tokenizer;
}

absl::Status BpeTokenizer::AddEntry(TokenId id, std::string_view token, bool is_special) {
  if (!IsInRange(id)) entries_.resize(id + 1);
  ASSIGN_OR_RETURN(TokenDecoder::Text text, decoder_.TextOf(token, /*is_first=*/false));
  if (decoder_.first_differs()) {
    ASSIGN_OR_RETURN(TokenDecoder::Text first, decoder_.TextOf(token, /*is_first=*/true));
    if (first.bytes != text.bytes) first_bytes_[id] = std::move(first.bytes);
  }
  entries_[id] = {.bytes = std::move(text.bytes),
                  .is_known = true,
                  .is_byte = text.is_byte,
                  .is_special = is_special};
  return absl::OkStatus();
}

absl::Status BpeTokenizer::AddTokens(std::vector<AddedToken> tokens) {
  // The reference looks for special tokens first, which matters if two are the same after
  // normalisation.
  std::vector<AddedToken> raw, normalized, special_normalized;
  for (AddedToken& token : tokens) {
    RETURN_IF_ERROR(AddEntry(token.id, token.written, token.special));
    if (token.is_literal) {
      first_bytes_.erase(token.id);
      entries_[token.id].bytes = token.content;
      entries_[token.id].is_byte = false;
    }
    added_ids_[token.written] = token.id;
    (token.normalized ? token.special ? special_normalized : normalized : raw)
        .push_back(std::move(token));
  }
  special_normalized.insert(special_normalized.end(), normalized.begin(), normalized.end());
  raw_finder_ = AddedTokenFinder(std::move(raw));
  normalized_finder_ = AddedTokenFinder(std::move(special_normalized));
  return absl::OkStatus();
}

TokenId BpeTokenizer::IdOf(std::string_view token) const {
  const auto it = added_ids_.find(View(token));
  return it != added_ids_.end() ? it->second : encoder_.IdOf(token);
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::Encode(std::string_view text,
                                                          SpecialTokens special) const {
  return EncodeMarked({{.text = std::string(text), .special = special}});
}

absl::StatusOr<std::vector<TokenId>> BpeTokenizer::EncodeMarked(
    absl::Span<const MarkedText> parts) const {
  std::string text;
  std::vector<TextRange> plain;
  for (const MarkedText& part : parts) {
    if (part.special == SpecialTokens::kPlain && !part.text.empty()) {
      plain.push_back({text.size(), text.size() + part.text.size()});
    }
    text += part.text;
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return FieldError("text", absl::StrCat("is not UTF-8 at byte ", at, " of ", text.size()));
  }
  std::vector<TokenId> ids;
  for (const TextPart& part : raw_finder_.Cut(text, plain)) {
    if (part.added_id >= 0) {
      ids.push_back(part.added_id);
    } else {
      const size_t begin = part.text.data() - text.data();
      const bool is_first = begin == 0;
      const SpecialTokens special = FirstOverlap(plain, {begin, begin + part.text.size()})
                                        ? SpecialTokens::kPlain
                                        : SpecialTokens::kParse;
      RETURN_IF_ERROR(EncodePart(part.text, is_first, special, &ids));
    }
  }
  return ids;
}

// Encodes text between the added tokens that are found before normalisation.
absl::Status BpeTokenizer::EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                                      std::vector<TokenId>* ids) const {
  ASSIGN_OR_RETURN(const std::string normal, normalizer_.Apply(std::string(text)));
  std::vector<TextRange> plain;
  if (special == SpecialTokens::kPlain) plain.push_back({0, normal.size()});
  for (const TextPart& part : normalized_finder_.Cut(normal, plain)) {
    if (part.added_id >= 0) {
      ids->push_back(part.added_id);
      continue;
    }
    const bool part_is_first = is_first && part.text.data() == normal.data();
    RETURN_IF_ERROR(pre_tokenizer_.ForEach(
        {.text = std::string(part.text), .is_first = part_is_first},
        [&](const PreTokenizer::Piece& piece) { return encoder_.Encode(piece.text, ids); }));
  }
  return absl::OkStatus();
}

std::optional<Tokenizer::TokenText> BpeTokenizer::TextOf(TokenId id, bool is_first) const {
  if (!IsInRange(id) || !entries_[id].is_known) return std::nullopt;
  if (is_first) {
    const auto it = first_bytes_.find(id);
    if (it != first_bytes_.end()) return TokenText{.bytes = it->second, .is_byte = false};
  }
  return TokenText{.bytes = entries_[id].bytes, .is_byte = entries_[id].is_byte};
}

std::string BpeTokenizer::Decode(absl::Span<const TokenId> ids, bool skip_special) const {
  const std::unique_ptr<Detokenizer> detokenizer = Detokenizer::New(this, {}, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer->Push(id);
  return text + detokenizer->Flush();
}

std::vector<TokenId> BpeTokenizer::TokensByMerges() const {
  const std::vector<int> ranks = encoder_.MergeRanks();
  const auto place_of = [&](TokenId id) {
    const Entry& entry = entries_[id];
    if (entry.is_special || entry.bytes.size() <= 1) return -1;
    const int rank = id < static_cast<TokenId>(ranks.size()) ? ranks[id] : -1;
    return rank < 0 ? std::numeric_limits<int>::max() : rank;
  };
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    if (entries_[id].is_known) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](TokenId a, TokenId b) { return place_of(a) < place_of(b); });
  return ids;
}

}  // namespace tandem
