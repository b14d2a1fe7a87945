#ifndef TANDEM_TEXT_DECODER_H_
#define TANDEM_TEXT_DECODER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json/json_fields.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Turns tokens into text: the decoder of a tokenizer.json. Only components that can work on a
// stream of tokens are implemented: each token has bytes of its own (Replace, Metaspace, Strip,
// ByteLevel), tokens written as bytes are joined to characters (ByteFallback), and the beginning of
// the whole text may lose characters (Strip after Fuse). Invalid UTF-8 becomes U+FFFD.
class TokenDecoder {
 public:
  // Creates a decoder from the field "decoder", which may be null. INVALID_ARGUMENT, naming a
  // component or an order of components that is not implemented, or a field that is wrong.
  static absl::StatusOr<TokenDecoder> FromJson(const JsonField& field);

  // The decoder of a byte-level vocabulary.
  static TokenDecoder ByteLevel();
  // SentencePiece's decoder: U+2581 is a space, "<0xE2>" a byte, and the beginning of a text loses
  // one space if `strips_space`.
  static TokenDecoder SentencePiece(bool strips_space);

  struct Text {
    std::string bytes;
    bool is_byte = false;  // one byte of a character, written as a byte ("<0xE2>")
  };
  // Returns the text of a token. `is_first`: the token begins the text. INVALID_ARGUMENT if an
  // expression takes too many steps.
  absl::StatusOr<Text> TextOf(std::string_view token, bool is_first) const;
  // Whether `is_first` can change the text of a token.
  bool first_differs() const { return first_differs_; }
  const TextRules& rules() const { return rules_; }

 private:
  // The output of the components so far.
  enum class Stage {
    kTokens,      // one text per token
    kCharacters,  // the same, with byte tokens joined to characters
    kWhole,       // one text
  };
  void AddByteLevel();
  absl::Status Add(const JsonField& field);
  absl::Status AddStrip(const JsonField& field);
  absl::Status AddMetaspace(const JsonField& field);
  absl::Status CheckStage(const JsonField& field) const;

  Stage stage_ = Stage::kTokens;
  std::vector<std::function<absl::StatusOr<std::string>(std::string token, bool is_first)>> steps_;
  bool first_differs_ = false;
  TextRules rules_;
};

}  // namespace tandem

#endif  // TANDEM_TEXT_DECODER_H_
