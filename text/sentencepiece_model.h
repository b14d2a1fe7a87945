#ifndef TANDEM_TEXT_SENTENCEPIECE_MODEL_H_
#define TANDEM_TEXT_SENTENCEPIECE_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/types.h"
#include "text/token_kinds.h"

namespace tandem {

// What a SentencePiece model file says: https://github.com/google/sentencepiece, the message
// ModelProto of sentencepiece_model.proto. Of its some hundred fields a tokenizer needs a dozen, so
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

}  // namespace tandem

#endif  // TANDEM_TEXT_SENTENCEPIECE_MODEL_H_
