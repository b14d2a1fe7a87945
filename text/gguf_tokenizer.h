#ifndef TANDEM_TEXT_GGUF_TOKENIZER_H_
#define TANDEM_TEXT_GGUF_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/gguf.h"
#include "nlohmann/json.hpp"
#include "tandem/tokenizer.h"

namespace tandem {

// The tokenizer in the keys "tokenizer.ggml.*". Of the model "gpt2" it is a byte-level BPE, cut as
// the reference library cuts for the models that "pre" names; of "llama" SentencePiece's BPE. Keys
// that are absent mean what they do to llama.cpp, but that "pre" must be there: another way to cut
// gives other tokens, and worse answers, without a word.
//
// NOT_FOUND or INVALID_ARGUMENT naming the file, the key, what was found and what is allowed.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGgufTokenizer(const GgufFile& file);

// What "tokenizer.ggml.pre" calls the way in which a tokenizer.json cuts texts, "pre_tokenizer" and
// "normalizer" together, where there are several names one that says the same of "ignore_merges";
// empty if it has no name for it.
std::string GgufPreOf(const nlohmann::json& tokenizer);

// Whether there is one: "tokenizer.ggml.model" is there, and neither "none" nor "no_vocab", which
// mean to llama.cpp that there is none. INVALID_ARGUMENT for a value that is no string.
absl::StatusOr<bool> HasGgufTokenizer(const GgufFile& file);

// The tokens that begin and end a text, as they are written; empty where there is none.
struct GgufTextEnds {
  std::string bos;
  std::string eos;
};
absl::StatusOr<GgufTextEnds> ReadGgufTextEnds(const GgufFile& file);

}  // namespace tandem

#endif  // TANDEM_TEXT_GGUF_TOKENIZER_H_
