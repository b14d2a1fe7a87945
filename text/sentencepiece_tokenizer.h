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

// The kinds of tokens, numbered as in GGUF files and in SentencePiece's.
enum class TokenKind {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // written only by programs: ordinary text never becomes it
  kUserDefined = 4,  // found in the text before all other processing
  kUnused = 5,
  kByte = 6,  // "<0xE2>"
};

// A vocabulary that is a list of tokens, each with a kind.
struct KindedTokens {
  std::vector<std::string> tokens;  // [vocab]; empty: the id has no token
  std::vector<TokenKind> kinds;     // [vocab]
  std::string path;                 // path of the list, for errors

  // Whether a token is unknown or control. REQUIRES: it is in [0, vocab).
  bool IsSpecial(TokenId id) const {
    TANDEM_DCHECK(0 <= id && static_cast<size_t>(id) < kinds.size());
    return kinds[id] == TokenKind::kUnknown || kinds[id] == TokenKind::kControl;
  }
  // The list of tokens, with the information which ones text may become.
  TokenList List() const;
  // The tokens that are found in a text as they are written: unknown and control tokens, which are
  // special, and user-defined tokens.
  std::vector<AddedToken> AddedTokens() const;
};

// The contents of a SentencePiece model file: https://github.com/google/sentencepiece, the message
// ModelProto of sentencepiece_model.proto. A tokenizer needs a dozen of its hundred or so fields,
// so they are parsed here from the wire format of protocol buffers instead of with its library.
struct SentencePieceModel {
  KindedTokens pieces;
  std::vector<float> scores;  // [vocab]
  // -1: no such token.
  TokenId unknown = -1;
  TokenId bos = 1;
  TokenId eos = 2;
  bool adds_prefix = true;  // puts a space before a text
  bool trims = true;        // removes spaces at the ends, and reduces runs of them to one
};

// Parses a model file. INVALID_ARGUMENT, with `name` and the field that is wrong or not
// implemented: models other than BPE, and normalisation other than of spaces.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes,
                                                           const std::string& name);

// Creates a tokenizer of SentencePiece's BPE, from any kind of file. Each stretch of text between
// special tokens is normalised, with a space before it if the model adds one, and encoded whole.
// Nothing is put around a text.
absl::StatusOr<std::unique_ptr<BpeTokenizer>> NewSentencePieceTokenizer(
    const SentencePieceModel& model, std::vector<AddedToken> added_tokens);

// Creates a tokenizer from the contents of a tokenizer.model, which encodes text as its own library
// does, and of the tokenizer_config.json next to it, which may be empty. The latter adds tokens
// (`added_tokens_decoder`) and states the tokens around a text; defaults are as in transformers'
// LlamaTokenizer: the model's own bos_id before the text. `name` is the first file's, for errors.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceTokenizer(std::string_view contents,
                                                                       std::string_view config,
                                                                       const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_
