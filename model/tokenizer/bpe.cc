#include "model/tokenizer/bpe.h"

#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

// Ids come from a file; a table as long as the largest must stay small.
constexpr int64_t kMostTokens = int64_t{1} << 24;

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A token of the piece on its way, in a doubly linked list.
struct BytePairEncoder::Symbol {
  TokenId id;
  int previous;
  int next;  // -1: none
};

absl::StatusOr<BytePairEncoder> BytePairEncoder::FromJson(const JsonField& field) {
  BytePairEncoder encoder;
  RETURN_IF_ERROR(field.CheckObject());
  ASSIGN_OR_RETURN(const JsonField type_field, field.Member("type"));
  // Early files have no type; theirs is the only model with merges.
  if (!type_field.is_null()) {
    ASSIGN_OR_RETURN(const std::string type, type_field.String());
    if (type != "BPE") return type_field.Error("is not implemented; there is BPE");
  }
  ASSIGN_OR_RETURN(const JsonField vocabulary, field.Member("vocab"));
  RETURN_IF_ERROR(encoder.ReadVocabulary(vocabulary));
  ASSIGN_OR_RETURN(const JsonField merges, field.Member("merges"));
  RETURN_IF_ERROR(encoder.ReadMerges(merges));
  RETURN_IF_ERROR(encoder.ReadFlags(field));
  return encoder;
}

absl::Status BytePairEncoder::ReadVocabulary(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckObject());
  for (const auto& [token, value] : field.value().items()) {
    const JsonField id_field(&value, absl::StrCat(field.path(), "[\"", token, "\"]"));
    ASSIGN_OR_RETURN(const int64_t id, id_field.Integer(0, kMostTokens - 1));
    if (tokens_.size() <= static_cast<size_t>(id)) tokens_.resize(id + 1);
    if (!vocabulary_.emplace(token, static_cast<TokenId>(id)).second) {
      return id_field.Error("comes twice");
    }
    tokens_[id] = token;
  }
  return absl::OkStatus();
}

absl::Status BytePairEncoder::ReadMerges(const JsonField& field) {
  RETURN_IF_ERROR(field.CheckArray());
  for (size_t rank = 0; rank < field.value().size(); ++rank) {
    ASSIGN_OR_RETURN(const JsonField entry, field.Element(rank));
    const nlohmann::json& value = entry.value();
    std::string left, right;
    if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
      left = value[0].get<std::string>();
      right = value[1].get<std::string>();
    } else if (value.is_string()) {
      const std::string text = value.get<std::string>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return entry.Error("is not two tokens with a space between");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      return entry.Error("is not a pair of tokens");
    }
    const TokenId left_id = IdOf(left);
    const TokenId right_id = IdOf(right);
    const TokenId merged = IdOf(left + right);
    if (left_id < 0 || right_id < 0 || merged < 0) {
      return entry.Error("merges tokens, or into one, that the vocabulary does not have");
    }
    // Of a pair that comes twice the later entry counts, as in the reference.
    merges_[PairKey(left_id, right_id)] = {static_cast<int>(rank), merged};
  }
  return absl::OkStatus();
}

absl::Status BytePairEncoder::ReadFlags(const JsonField& field) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const JsonField member, field.Member(key));
    if (!member.is_null() && member.value() != "") return member.Error("is not implemented");
  }
  ASSIGN_OR_RETURN(const JsonField dropout, field.Member("dropout"));
  if (!dropout.is_null() && dropout.value() != 0) {
    return dropout.Error("is not implemented: encoding would be random");
  }
  ASSIGN_OR_RETURN(const JsonField unknown, field.Member("unk_token"));
  if (!unknown.is_null()) {
    ASSIGN_OR_RETURN(const std::string token, unknown.String());
    unknown_ = IdOf(token);
    if (unknown_ < 0) return unknown.Error("is not in the vocabulary");
  }
  ASSIGN_OR_RETURN(const JsonField fuse, field.Member("fuse_unk"));
  ASSIGN_OR_RETURN(fuse_unknown_, fuse.Bool(false));
  ASSIGN_OR_RETURN(const JsonField ignore, field.Member("ignore_merges"));
  ASSIGN_OR_RETURN(ignore_merges_, ignore.Bool(false));
  ASSIGN_OR_RETURN(const JsonField fallback, field.Member("byte_fallback"));
  ASSIGN_OR_RETURN(const bool byte_fallback, fallback.Bool(false));
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    byte_tokens_.push_back(IdOf(absl::StrFormat("<0x%02X>", byte)));
  }
  return absl::OkStatus();
}

TokenId BytePairEncoder::IdOf(std::string_view token) const {
  const auto it = vocabulary_.find(absl::string_view(token.data(), token.size()));
  return it == vocabulary_.end() ? -1 : it->second;
}

const BytePairEncoder::Merge* BytePairEncoder::FindMerge(TokenId left, TokenId right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

// One token for each character; where there is none, its bytes' tokens, else the unknown token,
// else nothing.
void BytePairEncoder::AppendSymbols(std::string_view piece, std::vector<Symbol>* symbols) const {
  const auto push = [&](TokenId id) {
    const int index = static_cast<int>(symbols->size());
    symbols->push_back({id, index - 1, index + 1});
  };
  bool after_unknown = false;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, ReadUtf8(piece.substr(at)).size);
    at += character.size();
    const TokenId id = IdOf(character);
    bool has_bytes = id < 0 && !byte_tokens_.empty();
    for (size_t i = 0; has_bytes && i < character.size(); ++i) {
      has_bytes = byte_tokens_[static_cast<unsigned char>(character[i])] >= 0;
    }
    if (id >= 0) {
      push(id);
    } else if (has_bytes) {
      for (const char byte : character) push(byte_tokens_[static_cast<unsigned char>(byte)]);
    } else if (unknown_ >= 0 && !(fuse_unknown_ && after_unknown)) {
      push(unknown_);
    }
    after_unknown = id < 0 && !has_bytes && unknown_ >= 0;
  }
  if (!symbols->empty()) symbols->back().next = -1;
}

void BytePairEncoder::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  if (ignore_merges_) {
    if (const TokenId whole = IdOf(piece); whole >= 0) return ids->push_back(whole);
  }
  std::vector<Symbol> symbols;
  AppendSymbols(piece, &symbols);

  // A pair that may be merged; stale once either side has changed.
  struct Candidate {
    int rank;
    int left;
    TokenId left_id, right_id;
    bool operator<(const Candidate& other) const {  // the queue's top is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId right_id = symbols[symbols[left].next].id;
    if (const Merge* merge = FindMerge(symbols[left].id, right_id)) {
      candidates.push({merge->rank, left, symbols[left].id, right_id});
    }
  };
  for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    Symbol& left = symbols[top.left];
    if (left.id != top.left_id || left.next < 0 || symbols[left.next].id != top.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = FindMerge(top.left_id, top.right_id)->merged;
    right.id = -1;  // gone: no candidate matches it
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    consider(left.previous);
    consider(top.left);
  }
  for (int i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace tandem
