#ifndef TANDEM_TEXT_BPE_TOKENIZER_H_
#define TANDEM_TEXT_BPE_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace tandem {

// The tokenizer of all formats: added tokens are cut out; the rest is normalised, cut and encoded.
// Each format provides its own parts.
class BpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    BytePairEncoder encoder;
    TokenDecoder decoder;
    // Tokens of the encoder, or further ones; the first of several with the same content counts.
    // The content of tokens that are looked for in the normalised text is normalised.
    std::vector<AddedToken> added_tokens;
  };
  // INVALID_ARGUMENT if the decoder has an expression that takes too many steps. REQUIRES: no
  // content is empty, and the ids are up to HighestTokenId of all tokens.
  static absl::StatusOr<std::unique_ptr<BpeTokenizer>> New(Parts parts);

  // The tokens around a text; none at first.
  PostProcessor& post_processor() { return post_processor_; }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              SpecialTokens special) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeMarked(
      absl::Span<const MarkedText> parts) const override;
  std::vector<TokenId> WithTemplate(std::vector<TokenId> ids) const override {
    return post_processor_.Apply(std::move(ids));
  }
  std::string Decode(absl::Span<const TokenId> ids, bool skip_special) const override;
  int vocab_size() const override { return static_cast<int>(entries_.size()); }
  bool IsSpecial(TokenId id) const override { return IsInRange(id) && entries_[id].is_special; }
  TokenId IdOf(std::string_view token) const override;
  std::optional<TokenText> TextOf(TokenId id, bool is_first) const override;
  const TextRules& text_rules() const override { return decoder_.rules(); }
  std::vector<TokenId> TokensByMerges() const override;

 private:
  // A token by its id.
  struct Entry {
    std::string bytes;
    bool is_known = false;
    bool is_byte = false;
    bool is_special = false;
  };

  explicit BpeTokenizer(Parts parts);
  bool IsInRange(TokenId id) const { return id >= 0 && id < vocab_size(); }
  absl::Status AddEntry(TokenId id, std::string_view token, bool is_special);
  absl::Status AddTokens(std::vector<AddedToken> tokens);
  absl::Status EncodePart(std::string_view text, bool is_first, SpecialTokens special,
                          std::vector<TokenId>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BytePairEncoder encoder_;
  TokenDecoder decoder_;
  PostProcessor post_processor_;
  std::vector<Entry> entries_;  // [vocab]
  // The bytes at the beginning of a text, for ids whose bytes differ there.
  HashMap<TokenId, std::string> first_bytes_;
  HashMap<std::string, TokenId> added_ids_;
  AddedTokenFinder raw_finder_;         // for the text as it is
  AddedTokenFinder normalized_finder_;  // for the normalised text
};

}  // namespace tandem

#endif  // TANDEM_TEXT_BPE_TOKENIZER_H_
