#ifndef TANDEM_MODEL_TOKENIZER_DECODER_H_
#define TANDEM_MODEL_TOKENIZER_DECODER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// How tokens become text: the decoder of a tokenizer.json. All that are implemented have one form:
// each token has bytes of its own, these are joined, and what is no UTF-8 becomes U+FFFD.
class TokenDecoder {
 public:
  // From the field "decoder". INVALID_ARGUMENT naming a component that is not implemented or a
  // field that is wrong.
  static absl::StatusOr<TokenDecoder> FromJson(const JsonField& field);

  struct TokenText {
    std::string bytes;
    bool is_byte = false;  // one byte of a character, by the token's own word ("<0xE2>")
  };
  TokenText TextOf(std::string_view token) const;

  // Whether U+FFFD stands for each byte of an invalid run of byte tokens, and a run ends with the
  // next other token; else for each maximal invalid part of all the bytes.
  bool has_byte_tokens() const { return has_byte_tokens_; }
  // Spaces that the beginning of a text loses.
  int num_stripped() const { return num_stripped_; }
  // What stands between two tokens.
  std::string_view separator() const { return separator_; }

 private:
  absl::Status Add(const JsonField& field);
  absl::Status AddStrip(const JsonField& field);

  std::vector<std::function<std::string(const std::string&)>> steps_;
  bool has_byte_tokens_ = false;
  bool is_fused_ = false;
  int num_stripped_ = 0;
  std::string separator_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_DECODER_H_
