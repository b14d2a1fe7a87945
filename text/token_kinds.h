// Vocabularies that are a list of tokens, each of a kind: those of GGUF files, whose kinds are
// SentencePiece's, and SentencePiece's own.
#ifndef TANDEM_TEXT_TOKEN_KINDS_H_
#define TANDEM_TEXT_TOKEN_KINDS_H_

#include <string>
#include <vector>

#include "base/check.h"
#include "text/added_tokens.h"
#include "text/bpe.h"

namespace tandem {

// With their numbers in both formats.
enum class TokenKind {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // written by programs alone: ordinary text never becomes it
  kUserDefined = 4,  // found in the text before everything else
  kUnused = 5,
  kByte = 6,  // "<0xE2>"
};

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

}  // namespace tandem

#endif  // TANDEM_TEXT_TOKEN_KINDS_H_
