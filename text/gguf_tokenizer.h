#ifndef TANDEM_TEXT_GGUF_TOKENIZER_H_
#define TANDEM_TEXT_GGUF_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint/gguf.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Reads the tokenizer in the keys "tokenizer.ggml.*". For the model "gpt2" it is a byte-level BPE,
// which cuts texts as the reference library does for the models that "pre" names; for "llama" it is
// SentencePiece's BPE. Absent keys have llama.cpp's defaults, except that "pre" is required: with
// another way to cut texts, tokens and answers would silently become worse.
//
// Returns NOT_FOUND or INVALID_ARGUMENT, naming the file, the key, the value found and the values
// allowed.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGgufTokenizer(const GgufFile& file);

// Returns the name in "tokenizer.ggml.pre" for the way in which a tokenizer.json cuts texts
// ("pre_tokenizer" and "normalizer" together); of several names, preferably one with the same
// "ignore_merges". Empty if no name fits.
std::string GgufPreOf(const SortedJson& tokenizer);

// Returns whether the file has a tokenizer: "tokenizer.ggml.model" is present and is neither "none"
// nor "no_vocab", which mean to llama.cpp that there is none. INVALID_ARGUMENT if the value is not
// a string.
absl::StatusOr<bool> HasGgufTokenizer(const GgufFile& file);

// The written forms of the tokens that begin and end a text; empty if there is no such token.
struct GgufTextEnds {
  std::string bos;
  std::string eos;
};
absl::StatusOr<GgufTextEnds> ReadGgufTextEnds(const GgufFile& file);

}  // namespace tandem

#endif  // TANDEM_TEXT_GGUF_TOKENIZER_H_
