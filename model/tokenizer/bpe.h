#ifndef TANDEM_MODEL_TOKENIZER_BPE_H_
#define TANDEM_MODEL_TOKENIZER_BPE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/types.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// Byte-pair encoding of one piece of text: the model of a tokenizer.json. Characters become tokens,
// then the adjacent pair whose merge comes first in the list is merged, the leftmost of equals,
// until none is left (Sennrich, Haddow and Birch 2016). Thread-safe.
class BytePairEncoder {
 public:
  // From the field "model". INVALID_ARGUMENT naming the field that is wrong or not implemented.
  static absl::StatusOr<BytePairEncoder> FromJson(const JsonField& field);

  // Appends the tokens of `piece`. Time is O(n log n).   REQUIRES: piece is UTF-8.
  void Encode(std::string_view piece, std::vector<TokenId>* ids) const;

  TokenId IdOf(std::string_view token) const;  // or -1
  // The written form of each id; ids that no token has are empty.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Merge {
    int rank;
    TokenId merged;
  };
  struct Symbol;

  absl::Status ReadVocabulary(const JsonField& field);
  absl::Status ReadMerges(const JsonField& field);
  absl::Status ReadFlags(const JsonField& field);
  void AppendSymbols(std::string_view piece, std::vector<Symbol>* symbols) const;
  const Merge* FindMerge(TokenId left, TokenId right) const;

  absl::flat_hash_map<std::string, TokenId> vocabulary_;
  std::vector<std::string> tokens_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by the pair of ids
  TokenId unknown_ = -1;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::vector<TokenId> byte_tokens_;  // [256] of "<0x00>" and so on, or empty
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_BPE_H_
