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

// What special tokens written out in a text are.
enum class SpecialTokens {
  kParse,  // their ids
  kPlain,  // ordinary text
};

// A part of a text that is encoded as a whole.
struct MarkedText {
  std::string text;
  SpecialTokens special = SpecialTokens::kPlain;
};

// How the bytes of tokens become text.
struct TextRules {
  // Bytes of an invalid run of byte tokens become a U+FFFD each, and a run ends with the next other
  // token; else each maximal invalid part of all the bytes becomes one. (The reference replaces all
  // bytes of a run that is not valid as a whole, which would not be known before its end.)
  bool has_byte_tokens = false;
  std::string separator;  // what stands between two tokens
  // How many of which character the beginning of a text loses.
  int num_stripped = 0;
  std::string stripped;
};

// Text to tokens and back, exactly as the reference does: for a tokenizer.json Hugging Face's
// library, for a tokenizer.model SentencePiece's, for a GGUF file llama.cpp (gguf_tokenizer.h).
// Thread-safe.
class Tokenizer {
 public:
  // `path` is a tokenizer.json or a tokenizer.model, a model folder with one of them, the first
  // if it has both (and perhaps a tokenizer_config.json), or a model's GGUF file or its folder.
  // NOT_FOUND or INVALID_ARGUMENT naming the file, the field, what was found and what is allowed; a
  // component that is not implemented is an error, never ignored.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // The file that Load reads. Empty if the model has no tokenizer of its own: a folder without any
  // of a tokenizer's files, a GGUF file whose "tokenizer.ggml.model" is absent, "none" or
  // "no_vocab". Errors: GgufIn's, and those of a GGUF file.
  static absl::StatusOr<std::string> FileOf(const std::string& path);
  // From the contents of two JSON files; `config` may be empty. `name` stands for the first in
  // errors.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(std::string_view contents,
                                                          std::string_view config,
                                                          const std::string& name);
  virtual ~Tokenizer() = default;

  // Adds nothing at either end. INVALID_ARGUMENT naming the field `text`, with the offset,
  // if it is not UTF-8, and if a part of it cannot be cut or has no token.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                      SpecialTokens special) const = 0;
  // The same of the parts joined, but that a special token counts only where none of it is written
  // in a kPlain part: text from others cannot pose as a template's own tokens. (Special
  // tokens that are looked for in the normalised text count only between such parts.)
  virtual absl::StatusOr<std::vector<TokenId>> EncodeMarked(
      absl::Span<const MarkedText> parts) const = 0;
  // A text prompt's tokens with what the post-processor's template, else `add_bos_token` and
  // `add_eos_token` of tokenizer_config.json, put around them.
  virtual std::vector<TokenId> WithTemplate(std::vector<TokenId> ids) const = 0;
  // No clean-up of spaces. Bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary have
  // no text.
  virtual std::string Decode(absl::Span<const TokenId> ids, bool skip_special = false) const = 0;

  virtual int vocab_size() const = 0;  // the highest id plus one
  virtual bool IsSpecial(TokenId id) const = 0;
  // The id of a token by its exact written form (special ones too), or -1.
  virtual TokenId IdOf(std::string_view token) const = 0;

  // The bytes that a token adds to a text, `is_first`: as the first of it. Nothing for ids outside
  // the vocabulary.
  struct TokenText {
    std::string_view bytes;  // the tokenizer's
    bool is_byte = false;    // one byte of a character, by a token of its own
  };
  virtual std::optional<TokenText> TextOf(TokenId id, bool is_first) const = 0;
  virtual const TextRules& text_rules() const = 0;

  // Every id that has a token, the commonest first as far as the vocabulary tells: special tokens
  // and single bytes, then tokens in the order of the merges that make them, then the rest.
  virtual std::vector<TokenId> TokensByMerges() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOKENIZER_H_
