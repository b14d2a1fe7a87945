#ifndef TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define TANDEM_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/tokenizer.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_model.h"

namespace tandem {

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
