#ifndef TANDEM_MODEL_TOKENIZER_BPE_H_
#define TANDEM_MODEL_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/hash_map.h"
#include "base/types.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// The highest id that a file with `num_entries` tokens may use. Ids index tables, whose size a
// damaged or hostile file must not choose; real files leave few ids out.
int64_t HighestTokenId(size_t num_entries);

// Byte-pair encoding of one piece of text: the model of a tokenizer.json. Characters become tokens,
// then the adjacent pair whose merge comes first in the list is merged, the leftmost of equals,
// until none is left (Sennrich, Haddow and Birch 2016). Thread-safe.
class BytePairEncoder {
 public:
  // From the field "model". INVALID_ARGUMENT naming the field that is wrong or not implemented.
  static absl::StatusOr<BytePairEncoder> FromJson(const JsonField& field);

  // Appends the tokens of `piece`. Time is O(n log n). INVALID_ARGUMENT if it needs the unknown
  // token and the vocabulary has none.   REQUIRES: piece is UTF-8.
  absl::Status Encode(std::string_view piece, std::vector<TokenId>* ids) const;

  TokenId IdOf(std::string_view token) const;  // or -1
  // The written form of each id; ids that no token has are empty.
  const std::vector<std::string>& tokens() const { return tokens_; }
  size_t num_entries() const { return vocabulary_.size(); }

 private:
  struct Merge {
    int rank;
    TokenId merged;  // -1: there is none
  };

  absl::Status ReadVocabulary(const JsonField& field);
  absl::Status ReadMerges(const JsonField& field);
  absl::Status ReadFlags(const JsonField& field);
  TokenId IdOfCharacter(std::string_view character, char32_t code_point) const;
  bool AppendBytes(std::string_view character, std::vector<TokenId>* ids) const;
  absl::Status AppendCharacters(std::string_view piece, std::vector<TokenId>* ids) const;
  Merge FindMerge(TokenId left, TokenId right) const;
  void MergeFew(size_t begin, std::vector<TokenId>* ids) const;
  void MergeMany(size_t begin, std::vector<TokenId>* ids) const;

  HashMap<std::string, TokenId> vocabulary_;
  std::vector<std::string> tokens_;
  // Characters below U+0800, among them all of the byte alphabet.
  std::array<TokenId, 0x800> character_ids_;
  HashMap<uint64_t, Merge> merges_;  // by the pair of ids
  bool has_unknown_ = false;
  std::string unknown_token_;
  TokenId unknown_ = -1;  // -1: not in the vocabulary
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::vector<TokenId> byte_tokens_;  // [256] of "<0x00>" and so on, or empty
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_BPE_H_
