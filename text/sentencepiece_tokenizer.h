#ifndef TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/bpe_tokenizer.h"

namespace tandem {

// The kinds of tokens, with their numbers in GGUF files and in SentencePiece's.
enum class TokenKind {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // written by programs alone: ordinary text never becomes it
  kUserDefined = 4,  // found in the text before everything else
  kUnused = 5,
  kByte = 6,  // "<0xE2>"
};

// A vocabulary that is a list of tokens, each of a kind.
struct KindedTokens {
  std::vector<std::string> tokens;  // [vocab]; empty: the id has no token
  std::vector<TokenKind> kinds;     // [vocab]
  std::string path;                 // of the list, for errors

  // Whether a token is unknown or control.   REQUIRES: it is in [0, vocab).
  bool IsSpecial(TokenId id) const {
    TANDEM_DCHECK(0 <= id && static_cast<size_t>(id) < kinds.size());
    return kinds[id] == TokenKind::kUnknown || kinds[id] == TokenKind::kControl;
  }
  // The tokens with which of them text may become.
  TokenList List() const;
  // Those that are found in a text as they are written: unknown and control tokens, which are
  // special, and those that users defined.
  std::vector<AddedToken> AddedTokens() const;
};

// The contents of a SentencePiece model file: https://github.com/google/sentencepiece, the message
// ModelProto of sentencepiece_model.proto. A tokenizer needs a dozen of its some hundred fields, so
// they are read here, in the wire format of protocol buffers, rather than by its library.
struct SentencePieceModel {
  KindedTokens pieces;
  std::vector<float> scores;  // [vocab]
  // -1: there is none.
  TokenId unknown = -1;
  TokenId bos = 1;
  TokenId eos = 2;
  bool adds_prefix = true;  // puts a space in front of a text
  bool trims = true;        // of spaces at the ends nothing is left, of those between one
};

// INVALID_ARGUMENT naming `name` and the field that is wrong, or that is not implemented: models
// other than BPE, and normalisation other than of spaces.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes,
                                                           const std::string& name);

// Of SentencePiece's BPE, whatever file it is from. Stretches of text between special tokens are
// normalised, each with a space in front where there is one, and encoded whole. Nothing is put
// around a text.
absl::StatusOr<std::unique_ptr<BpeTokenizer>> NewSentencePieceTokenizer(
    const SentencePieceModel& model, std::vector<AddedToken> added_tokens);

// From the contents of a tokenizer.model, which text is encoded as by its own library, and of the
// tokenizer_config.json beside it, which may be empty. That adds tokens (`added_tokens_decoder`)
// and says what stands around a text; what it leaves open is as in transformers' LlamaTokenizer:
// the model's own bos_id in front. `name` stands for the first in errors.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceTokenizer(std::string_view contents,
                                                                       std::string_view config,
                                                                       const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_
