#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// Up to this many tokens, a scan of all pairs for each merge is faster than a queue.
constexpr size_t kFewTokens = 64;

constexpr int64_t kMaxTokens = int64_t{1} << 24;

// In bytes. Finding all pairs that make a token is quadratic in its length; real tokens have less
// than 256 bytes.
constexpr size_t kLongestMerged = 4096;

absl::Status WrongElement(const std::string& path, size_t index, std::string_view text,
                          absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, "[", index, "]: ", Quoted(View(text)), " ", what));
}

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

using TokenPair = std::pair<std::string_view, std::string_view>;

constexpr char kNoMerge[] = "is not two tokens with a space between";

std::optional<TokenPair> SplitMerge(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return std::nullopt;
  }
  return TokenPair(text.substr(0, space), text.substr(space + 1));
}

// Returns the two tokens of an entry of "merges": "a b" or ["a", "b"].
absl::StatusOr<TokenPair> MergedTokens(const JsonField& field) {
  const SortedJson& value = field.value();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return TokenPair(value[0].get_ref<const std::string&>(),
                     value[1].get_ref<const std::string&>());
  }
  if (!value.is_string()) return field.Error("is not a pair of tokens");
  const auto tokens = SplitMerge(value.get_ref<const std::string&>());
  if (!tokens.has_value()) return field.Error(kNoMerge);
  return *tokens;
}

}  // namespace

int64_t HighestTokenId(size_t num_entries) {
  return std::min<int64_t>(kMaxTokens - 1, 65535 + 16 * static_cast<int64_t>(num_entries));
}

absl::StatusOr<BytePairEncoder> BytePairEncoder::FromJson(const JsonField& field) {
  BytePairEncoder encoder;
  RETURN_IF_ERROR(field.CheckObject());
  ASSIGN_OR_RETURN(const JsonField type_field, field.Member("type"));
  // Early files do not have a type; BPE was the only model with merges.
  if (!type_field.is_null()) {
    ASSIGN_OR_RETURN(const std::string type, type_field.String());
    if (type != "BPE") return type_field.Error("is not implemented, allowed: BPE");
  }
  ASSIGN_OR_RETURN(const JsonField vocabulary, field.Member("vocab"));
  RETURN_IF_ERROR(encoder.ReadVocabulary(vocabulary));
  ASSIGN_OR_RETURN(const JsonField merges, field.Member("merges"));
  RETURN_IF_ERROR(encoder.ReadMerges(merges));
  RETURN_IF_ERROR(encoder.ReadFlags(field));
  return encoder;
}

absl::StatusOr<BytePairEncoder> BytePairEncoder::FromMerges(
    TokenList list, absl::Span<const std::string_view> merges, const std::string& path,
    bool ignore_merges) {
  BytePairEncoder encoder;
  RETURN_IF_ERROR(encoder.ReadList(std::move(list)));
  ReserveAll(&encoder.merges_, merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto pair = SplitMerge(merges[i]);
    if (!pair.has_value()) return WrongElement(path, i, merges[i], kNoMerge);
    const auto missing = encoder.AddMerge(pair->first, pair->second, static_cast<int>(i));
    if (missing.has_value()) {
      return WrongElement(path, i, merges[i],
                          absl::StrCat("needs ", Quoted(*missing), ", which is not a token"));
    }
  }
  encoder.ignore_merges_ = ignore_merges;
  return encoder;
}

absl::StatusOr<BytePairEncoder> BytePairEncoder::FromScores(TokenList list,
                                                            absl::Span<const float> scores,
                                                            TokenId unknown) {
  BytePairEncoder encoder;
  const std::string path = list.path;
  RETURN_IF_ERROR(encoder.ReadList(std::move(list)));
  TANDEM_CHECK(scores.size() == encoder.tokens_.size());
  encoder.has_unknown_ = true;
  encoder.unknown_ = unknown;
  encoder.fuse_unknown_ = true;
  encoder.bytes_pass_unknown_ = false;
  for (int byte = 0; byte < 256; ++byte) {
    encoder.byte_tokens_.push_back(encoder.IdOf(Format("<0x%02X>", byte)));
  }
  // Pairs that make the same token, or tokens with the same score, have the same rank.
  std::vector<float> ranked(scores.begin(), scores.end());
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  PairMerges merges;
  for (size_t id = 0; id < encoder.tokens_.size(); ++id) {
    if (!encoder.is_text_[id]) continue;
    const std::string& token = encoder.tokens_[id];
    if (token.size() > kLongestMerged) {
      return WrongElement(path, id, token,
                          absl::StrCat("has ", token.size(), " bytes, allowed: ", kLongestMerged));
    }
    const auto rank = std::lower_bound(ranked.begin(), ranked.end(), scores[id], std::greater<>());
    encoder.AddMergesInto(static_cast<TokenId>(id), static_cast<int>(rank - ranked.begin()),
                          &merges);
  }
  ReserveAll(&encoder.merges_, merges.size());
  for (const auto& [pair, merge] : merges) encoder.merges_[pair] = merge;
  return encoder;
}

std::vector<int> BytePairEncoder::MergeRanks() const {
  std::vector<int> ranks(tokens_.size(), -1);
  for (const auto& [pair, merge] : merges_) {
    if (merge.merged < 0 || merge.merged >= static_cast<TokenId>(ranks.size())) continue;
    int& rank = ranks[merge.merged];
    if (rank < 0 || merge.rank < rank) rank = merge.rank;
  }
  return ranks;
}

absl::Status BytePairEncoder::ReadList(TokenList list) {
  if (list.tokens.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat(list.path, ": has ", list.tokens.size(),
                                                   " tokens, allowed: up to ", kMaxTokens));
  }
  character_ids_.fill(-1);
  tokens_ = std::move(list.tokens);
  is_text_ = std::move(list.is_text);
  vocabulary_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.empty()) continue;
    if (FindInvalidUtf8(token) != std::string::npos) {
      return WrongElement(list.path, id, token, "is not UTF-8");
    }
    if (const TokenId known = IdOf(token); known >= 0) {
      return WrongElement(list.path, id, token, absl::StrCat("is token ", known, " already"));
    }
    AddToken(token, static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

void BytePairEncoder::AddToken(std::string_view token, TokenId id) {
  vocabulary_.emplace(token, id);
  NoteCharacter(token);
}

// Records the id of a text that is one character.
void BytePairEncoder::NoteCharacter(std::string_view text) {
  if (text.empty()) return;
  const Utf8Prefix prefix = ReadUtf8(text);
  if (prefix.size == static_cast<int>(text.size()) && prefix.code_point < character_ids_.size()) {
    character_ids_[prefix.code_point] = TextIdOf(text);
  }
}

// Adds a merge for every pair of symbols (tokens or characters) that makes the token `merged`.
void BytePairEncoder::AddMergesInto(TokenId merged, int rank, PairMerges* merges) {
  const std::string_view token = tokens_[merged];
  for (size_t at = 0; at < token.size();) {
    at += ReadUtf8(token.substr(at)).size;
    const std::string_view left = token.substr(0, at);
    const std::string_view right = token.substr(at);
    if (right.empty() || !IsSymbol(left) || !IsSymbol(right)) continue;
    merges->emplace_back(PairKey(SymbolOf(left), SymbolOf(right)), Merge{rank, merged});
  }
}

bool BytePairEncoder::IsSymbol(std::string_view text) const {
  return ReadUtf8(text).size == static_cast<int>(text.size()) || TextIdOf(text) >= 0;
}

// REQUIRES: IsSymbol(text)
TokenId BytePairEncoder::SymbolOf(std::string_view text) {
  if (const TokenId id = TextIdOf(text); id >= 0) return id;
  const TokenId id = static_cast<TokenId>(tokens_.size() + hidden_.size());
  hidden_.emplace_back(text);
  hidden_ids_.emplace(text, id);
  NoteCharacter(text);
  return id;
}

absl::Status BytePairEncoder::ReadVocabulary(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckObject());
  character_ids_.fill(-1);
  const int64_t highest = HighestTokenId(field.value().size());
  std::vector<bool> is_used;
  vocabulary_.reserve(field.value().size());
  for (const auto& [token, value] : field.value().items()) {
    const bool is_number = value.is_number_integer() && value >= 0 && value <= highest;
    const size_t id = is_number ? value.get<size_t>() : 0;
    if (!is_number || (id < is_used.size() && is_used[id])) {
      const std::string where = absl::StrCat(field.path(), "[", Quoted(token), "]: ", Shown(value));
      return absl::InvalidArgumentError(
          is_number ? absl::StrCat(where, " is the id of ", Quoted(tokens_[id]), " already")
                    : absl::StrCat(where, " is not an integer from 0 to ", highest));
    }
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      is_used.resize(id + 1);
    }
    is_used[id] = true;
    tokens_[id] = token;
    AddToken(token, static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

absl::Status BytePairEncoder::ReadMerges(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckArray());
  ReserveAll(&merges_, field.value().size());
  int rank = 0;
  for (size_t i = 0; i < field.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
    // Files that were converted from text keep its first line.
    const SortedJson& value = entry.value();
    if (value.is_string() && value.get_ref<const std::string&>().rfind("#version", 0) == 0)
      continue;
    ASSIGN_OR_RETURN(const auto tokens, MergedTokens(entry));
    const auto [left, right] = tokens;
    if (const auto missing = AddMerge(left, right, rank++); missing.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.path(), ": ", Quoted(*missing), " is not in the vocabulary"));
    }
  }
  return absl::OkStatus();
}

// Adds a merge. Returns the token of it that is not in the vocabulary, if any. The later entry of a
// duplicate pair counts, as in the reference.
std::optional<std::string> BytePairEncoder::AddMerge(std::string_view left, std::string_view right,
                                                     int rank) {
  const std::string merged = absl::StrCat(View(left), View(right));
  const TokenId left_id = IdOf(left);
  const TokenId right_id = IdOf(right);
  if (left_id < 0) return std::string(left);
  if (right_id < 0) return std::string(right);
  if (IdOf(merged) < 0) return merged;
  const TokenId merged_id = TextIdOf(merged);
  if (merged_id >= 0) merges_[PairKey(left_id, right_id)] = {rank, merged_id};
  return std::nullopt;
}

absl::Status BytePairEncoder::ReadFlags(const JsonField& field) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const JsonField member, field.Member(key));
    if (!member.is_null() && !IsText(member.value(), "")) {
      return member.Error("is not implemented, allowed: null, \"\"");
    }
  }
  ASSIGN_OR_RETURN(const JsonField dropout, field.Member("dropout"));
  if (!dropout.is_null() && dropout.value() != 0) {
    return dropout.Error("is not implemented (encoding would be random), allowed: null, 0");
  }
  ASSIGN_OR_RETURN(const JsonField unknown, field.Member("unk_token"));
  has_unknown_ = !unknown.is_null();
  if (has_unknown_) {
    ASSIGN_OR_RETURN(unknown_token_, unknown.String());
    unknown_ = IdOf(unknown_token_);
  }
  ASSIGN_OR_RETURN(const JsonField fuse, field.Member("fuse_unk"));
  ASSIGN_OR_RETURN(fuse_unknown_, fuse.Bool(false));
  ASSIGN_OR_RETURN(const JsonField ignore, field.Member("ignore_merges"));
  ASSIGN_OR_RETURN(ignore_merges_, ignore.Bool(false));
  ASSIGN_OR_RETURN(const JsonField fallback, field.Member("byte_fallback"));
  ASSIGN_OR_RETURN(const bool byte_fallback, fallback.Bool(false));
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    byte_tokens_.push_back(IdOf(Format("<0x%02X>", byte)));
  }
  return absl::OkStatus();
}

TokenId BytePairEncoder::IdOf(std::string_view token) const {
  const auto it = vocabulary_.find(View(token));
  return it == vocabulary_.end() ? -1 : it->second;
}

// Returns the id that text becomes, which is that of a token or of a hidden character, or -1.
TokenId BytePairEncoder::TextIdOf(std::string_view token) const {
  const TokenId id = IdOf(token);
  if (id >= 0 && (is_text_.empty() || is_text_[id])) return id;
  const auto hidden = hidden_ids_.find(View(token));
  return hidden == hidden_ids_.end() ? -1 : hidden->second;
}

TokenId BytePairEncoder::IdOfCharacter(std::string_view character, char32_t code_point) const {
  return code_point < character_ids_.size() ? character_ids_[code_point] : TextIdOf(character);
}

BytePairEncoder::Merge BytePairEncoder::FindMerge(TokenId left, TokenId right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? Merge{.rank = 0, .merged = -1} : it->second;
}

bool BytePairEncoder::HasBytes(std::string_view character) const {
  return !byte_tokens_.empty() &&
         std::all_of(character.begin(), character.end(), [this](char byte) {
           return byte_tokens_[static_cast<unsigned char>(byte)] >= 0;
         });
}

// Appends the tokens of a character's bytes. Returns false, and appends nothing, unless each byte
// has one.
bool BytePairEncoder::AppendBytes(std::string_view character, std::vector<TokenId>* ids) const {
  if (!HasBytes(character)) return false;
  for (const char byte : character) ids->push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  return true;
}

absl::Status BytePairEncoder::NoToken(std::string_view character) const {
  return FieldError(
      "text",
      absl::StrCat(Quoted(View(character)), " has no token, and ",
                   unknown_token_.empty() ? "the vocabulary has no unknown token"
                                          : absl::StrCat("model.unk_token ", Quoted(unknown_token_),
                                                         " is not in the vocabulary")));
}

// Replaces the hidden characters of ids[begin..] by the tokens that they would be without merges.
absl::Status BytePairEncoder::ReplaceHidden(size_t begin, std::vector<TokenId>* ids) const {
  const std::vector<TokenId> merged(ids->begin() + begin, ids->end());
  ids->resize(begin);
  for (const TokenId id : merged) {
    const size_t index = id - tokens_.size();
    const bool is_hidden = id >= static_cast<int>(tokens_.size());
    if (is_hidden && AppendBytes(hidden_[index], ids)) continue;
    if (is_hidden && unknown_ < 0) return NoToken(hidden_[index]);
    const TokenId shown = is_hidden ? unknown_ : id;
    const bool repeats = shown == unknown_ && ids->size() > begin && ids->back() == unknown_;
    if (!repeats) ids->push_back(shown);
  }
  return absl::OkStatus();
}

// Appends one token for each character. A character without a token becomes the tokens of its
// bytes, else the unknown token, else nothing. An unknown token waits for the next character that
// has a token of its own; byte tokens may be appended before it.
absl::Status BytePairEncoder::AppendCharacters(std::string_view piece,
                                               std::vector<TokenId>* ids) const {
  bool unknown_waits = false;
  for (size_t at = 0; at < piece.size();) {
    const Utf8Prefix prefix = ReadUtf8(piece.substr(at));
    const std::string_view character = piece.substr(at, prefix.size);
    at += prefix.size;
    if (const TokenId id = IdOfCharacter(character, prefix.code_point); id >= 0) {
      if (unknown_waits) ids->push_back(unknown_);
      unknown_waits = false;
      ids->push_back(id);
      continue;
    }
    if (unknown_waits && !bytes_pass_unknown_ && HasBytes(character)) {
      ids->push_back(unknown_);
      unknown_waits = false;
    }
    if (AppendBytes(character, ids) || !has_unknown_) continue;
    if (unknown_ < 0) return NoToken(character);
    if (unknown_waits && !fuse_unknown_) ids->push_back(unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) ids->push_back(unknown_);
  return absl::OkStatus();
}

absl::Status BytePairEncoder::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  if (ignore_merges_) {
    if (const TokenId whole = TextIdOf(piece); whole >= 0) {
      ids->push_back(whole);
      return absl::OkStatus();
    }
  }
  const size_t begin = ids->size();
  RETURN_IF_ERROR(AppendCharacters(piece, ids));
  if (ids->size() - begin <= kFewTokens) {
    MergeFew(begin, ids);
  } else {
    MergeMany(begin, ids);
  }
  return hidden_.empty() ? absl::OkStatus() : ReplaceHidden(begin, ids);
}

// Merges ids[begin..] in O(n^2).
void BytePairEncoder::MergeFew(size_t begin, std::vector<TokenId>* ids) const {
  TokenId* tokens = ids->data() + begin;
  size_t size = ids->size() - begin;
  std::array<Merge, kFewTokens> merges;  // [size - 1]: of each token and the next one
  for (size_t i = 0; i + 1 < size; ++i) merges[i] = FindMerge(tokens[i], tokens[i + 1]);
  while (size > 1) {
    size_t best = size;
    for (size_t i = 0; i + 1 < size; ++i) {
      const bool is_better = best == size || merges[i].rank < merges[best].rank;
      if (merges[i].merged >= 0 && is_better) best = i;
    }
    if (best == size) break;
    tokens[best] = merges[best].merged;
    std::copy(tokens + best + 2, tokens + size, tokens + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + size - 1, merges.begin() + best);
    --size;
    if (best > 0) merges[best - 1] = FindMerge(tokens[best - 1], tokens[best]);
    if (best + 1 < size) merges[best] = FindMerge(tokens[best], tokens[best + 1]);
  }
  ids->resize(begin + size);
}

// Merges ids[begin..] in O(n log n).
void BytePairEncoder::MergeMany(size_t begin, std::vector<TokenId>* ids) const {
  // A token in a doubly linked list.
  struct Symbol {
    TokenId id;
    int previous;
    int next;  // -1: none
  };
  // A pair that may be merged; stale once either side has changed.
  struct Candidate {
    int rank;
    int left;
    TokenId left_id, right_id;
    TokenId merged;
    bool operator<(const Candidate& other) const {  // the queue's top is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  symbols.reserve(ids->size() - begin);
  for (size_t i = begin; i < ids->size(); ++i) {
    const int index = static_cast<int>(i - begin);
    symbols.push_back({(*ids)[i], index - 1, i + 1 < ids->size() ? index + 1 : -1});
  }
  std::vector<Candidate> candidates;
  candidates.reserve(ids->size() - begin);
  const auto consider = [&](int left) {
    if (left < 0 || symbols[left].next < 0) return false;
    const TokenId right_id = symbols[symbols[left].next].id;
    const Merge merge = FindMerge(symbols[left].id, right_id);
    if (merge.merged < 0) return false;
    candidates.push_back({merge.rank, left, symbols[left].id, right_id, merge.merged});
    return true;
  };
  for (int i = 0; i < static_cast<int>(symbols.size()); ++i) consider(i);
  std::make_heap(candidates.begin(), candidates.end());
  while (!candidates.empty()) {
    const Candidate top = candidates.front();
    std::pop_heap(candidates.begin(), candidates.end());
    candidates.pop_back();
    Symbol& left = symbols[top.left];
    if (left.id != top.left_id || left.next < 0 || symbols[left.next].id != top.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = top.merged;
    right.id = -1;  // removed: matches no candidate
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    for (const int index : {left.previous, top.left}) {
      if (consider(index)) std::push_heap(candidates.begin(), candidates.end());
    }
  }
  ids->resize(begin);
  for (int i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace tandem
