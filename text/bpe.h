#ifndef TANDEM_TEXT_BPE_H_
#define TANDEM_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/json/json_fields.h"
#include "tandem/types.h"

namespace tandem {

// Returns the highest id that a file with `num_entries` tokens may use. Ids index tables, whose
// size a damaged or hostile file must not control; real files skip few ids.
int64_t HighestTokenId(size_t num_entries);

// The tokens of a vocabulary that is stored as a list.
struct TokenList {
  std::vector<std::string> tokens;  // [vocab]; empty: the id has no token
  // [vocab]: whether ordinary text may become this token; control and unknown tokens may not.
  std::vector<bool> is_text;
  std::string path;  // path of the list, for errors: "model.gguf: tokenizer.ggml.tokens"
};

// Byte-pair encoding of one piece of text: the model of a tokenizer.json. Characters become tokens;
// then the adjacent pair whose merge comes first in the list is merged, the leftmost among equals,
// until no pair can be merged (Sennrich, Haddow and Birch 2016). Thread-safe.
class BytePairEncoder {
 public:
  // Creates an encoder from the field "model". INVALID_ARGUMENT, naming the field that is wrong or
  // not implemented.
  static absl::StatusOr<BytePairEncoder> FromJson(const JsonField& field);

  // Creates an encoder from merges "left right", best first; `path` is the path of the list, for
  // errors. With `ignore_merges`, a piece that is a token is encoded as that token. Merges into a
  // token that text may not become are left out. INVALID_ARGUMENT, naming the element that is
  // wrong.
  static absl::StatusOr<BytePairEncoder> FromMerges(TokenList list,
                                                    absl::Span<const std::string_view> merges,
                                                    const std::string& path, bool ignore_merges);
  // Creates SentencePiece's encoder (Kudo and Richardson 2018). Two neighbours that together are a
  // token of text may be merged; the pair whose token has the highest score is merged first.
  // Characters that have no token at the end become the tokens of their bytes ("<0xE2>"), else
  // `unknown`, one for each run. `unknown` is a token that text may not become, or -1; then such
  // characters are an error. INVALID_ARGUMENT, naming the element that is wrong. REQUIRES: as many
  // scores as tokens, all finite.
  static absl::StatusOr<BytePairEncoder> FromScores(TokenList list, absl::Span<const float> scores,
                                                    TokenId unknown);

  // Appends the tokens of `piece` in O(n log n). INVALID_ARGUMENT if it needs the unknown token and
  // the vocabulary does not have one. REQUIRES: piece is UTF-8.
  absl::Status Encode(std::string_view piece, std::vector<TokenId>* ids) const;

  TokenId IdOf(std::string_view token) const;  // or -1
  // [ids]: the written form of each token; empty for ids without a token.
  const std::vector<std::string>& tokens() const { return tokens_; }
  size_t num_entries() const { return vocabulary_.size(); }
  // [tokens()]: the rank of the first merge that makes the token, or -1.
  std::vector<int> MergeRanks() const;

 private:
  struct Merge {
    int rank;
    TokenId merged;  // -1: no merge
  };
  using PairMerges = std::vector<std::pair<uint64_t, Merge>>;

  void AddToken(std::string_view token, TokenId id);
  void NoteCharacter(std::string_view text);
  absl::Status ReadVocabulary(const JsonField& field);
  absl::Status ReadList(TokenList list);
  std::optional<std::string> AddMerge(std::string_view left, std::string_view right, int rank);
  // Appends the merges of two symbols into this token.
  void AddMergesInto(TokenId merged, int rank, PairMerges* merges);
  bool IsSymbol(std::string_view text) const;
  TokenId SymbolOf(std::string_view text);
  absl::Status ReadMerges(const JsonField& field);
  absl::Status ReadFlags(const JsonField& field);
  TokenId TextIdOf(std::string_view token) const;
  TokenId IdOfCharacter(std::string_view character, char32_t code_point) const;
  bool HasBytes(std::string_view character) const;
  bool AppendBytes(std::string_view character, std::vector<TokenId>* ids) const;
  absl::Status NoToken(std::string_view character) const;
  absl::Status ReplaceHidden(size_t begin, std::vector<TokenId>* ids) const;
  absl::Status AppendCharacters(std::string_view piece, std::vector<TokenId>* ids) const;
  Merge FindMerge(TokenId left, TokenId right) const;
  void MergeFew(size_t begin, std::vector<TokenId>* ids) const;
  void MergeMany(size_t begin, std::vector<TokenId>* ids) const;

  HashMap<std::string, TokenId> vocabulary_;
  std::vector<std::string> tokens_;
  std::vector<bool> is_text_;  // [tokens], or empty for all: whether text may become the token
  // Characters that are parts of tokens but not tokens of text themselves. Their ids follow the
  // last token's; they are merged like others and replaced at the end.
  std::vector<std::string> hidden_;
  HashMap<std::string, TokenId> hidden_ids_;
  // The ids of characters below U+0800, which include the whole byte alphabet.
  std::array<TokenId, 0x800> character_ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by the pair of ids
  bool has_unknown_ = false;
  std::string unknown_token_;
  TokenId unknown_ = -1;  // -1: not in the vocabulary
  bool fuse_unknown_ = false;
  bool bytes_pass_unknown_ =
      true;  // true in the reference for tokenizer.json; see AppendCharacters
  bool ignore_merges_ = false;
  std::vector<TokenId> byte_tokens_;  // [256] of "<0x00>" and so on, or empty
};

}  // namespace tandem

#endif  // TANDEM_TEXT_BPE_H_
