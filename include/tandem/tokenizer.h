#ifndef TANDEM_INCLUDE_TANDEM_TOKENIZER_H_
#define TANDEM_INCLUDE_TANDEM_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// How special tokens written in a text are read.
enum class SpecialTokens {
  kParse,  // as their ids
  kPlain,  // as ordinary text
};

// A part of a text; the parts of a text are encoded together.
struct MarkedText {
  std::string text;
  SpecialTokens special = SpecialTokens::kPlain;
};

// How the bytes of tokens become text.
struct TextRules {
  // Whether there are byte tokens. If so, each byte of an invalid run of byte tokens becomes a
  // U+FFFD, and a run ends with the next other token. Otherwise each maximal invalid part of the
  // bytes becomes one U+FFFD. (The reference replaces all bytes of a run that is invalid as a
  // whole, which would be known only at its end.)
  bool has_byte_tokens = false;
  std::string separator;  // between two tokens
  // How many leading copies of `stripped` are removed from a text.
  int num_stripped = 0;
  std::string stripped;
};

// Text to tokens and back, exactly as the reference does: for a tokenizer.json Hugging Face's
// library, for a tokenizer.model SentencePiece's, for a GGUF file llama.cpp (gguf_tokenizer.h).
// Thread-safe.
class Tokenizer {
 public:
  // `path` is a tokenizer.json, a tokenizer.model, a model folder that contains one of them (with
  // both, the first is used) and perhaps a tokenizer_config.json, or a model's GGUF file or its
  // folder. NOT_FOUND or INVALID_ARGUMENT naming the file, the field, the value found and the
  // values allowed. A component that is not implemented is an error; it is never ignored.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // Returns the file that Load reads. Empty if the model does not have its own tokenizer: a folder
  // without tokenizer files, or a GGUF file whose "tokenizer.ggml.model" is absent, "none" or
  // "no_vocab". Errors: GgufIn's, and those of a GGUF file.
  static absl::StatusOr<std::string> FileOf(const std::string& path);
  // Makes a tokenizer from the contents of tokenizer.json and tokenizer_config.json; `config` may
  // be empty. Errors call the first one `name`.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(std::string_view contents,
                                                          std::string_view config,
                                                          const std::string& name);
  virtual ~Tokenizer() = default;

  // Encodes `text` without adding tokens at either end. INVALID_ARGUMENT naming the field `text`,
  // with the offset, if it is not UTF-8, or if a part of it cannot be split or does not have a
  // token.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                      SpecialTokens special) const = 0;
  // Encodes the joined parts. A special token is recognised only if no byte of it is in a kPlain
  // part, so untrusted text cannot imitate a template's own tokens. (Special tokens that are
  // matched in the normalised text are recognised only between kPlain parts.)
  virtual absl::StatusOr<std::vector<TokenId>> EncodeMarked(
      absl::Span<const MarkedText> parts) const = 0;
  // Adds the tokens that surround a text prompt: those of the post-processor's template, else those
  // that `add_bos_token` and `add_eos_token` of tokenizer_config.json add.
  virtual std::vector<TokenId> WithTemplate(std::vector<TokenId> ids) const = 0;
  // Decodes without cleaning up spaces. Invalid UTF-8 becomes U+FFFD. Ids outside the vocabulary
  // have no text.
  virtual std::string Decode(absl::Span<const TokenId> ids, bool skip_special = false) const = 0;

  virtual int vocab_size() const = 0;  // the highest id plus one
  virtual bool IsSpecial(TokenId id) const = 0;
  // The id of the token with exactly this text (special tokens included), or -1.
  virtual TokenId IdOf(std::string_view token) const = 0;

  // The bytes that a token adds to a text; `is_first`: as the first token of the text. Nothing for
  // ids outside the vocabulary.
  struct TokenText {
    std::string_view bytes;  // owned by the tokenizer
    bool is_byte = false;    // a byte token: one byte of a character
  };
  virtual std::optional<TokenText> TextOf(TokenId id, bool is_first) const = 0;
  virtual const TextRules& text_rules() const = 0;

  // Every id that has a token, the most common first as far as the vocabulary shows it: special
  // tokens and single bytes, then tokens in the order of their merges, then the rest.
  virtual std::vector<TokenId> TokensByMerges() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOKENIZER_H_
