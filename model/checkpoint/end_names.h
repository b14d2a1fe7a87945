// The names of tokens that end a generation, whatever their type in the vocabulary, by llama.cpp's
// rule (its src/llama-vocab.cpp).
#ifndef TANDEM_MODEL_CHECKPOINT_END_NAMES_H_
#define TANDEM_MODEL_CHECKPOINT_END_NAMES_H_

#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// A fill-in-the-middle role of one token that also ends a generation: padding, the next repository,
// the next file. A GGUF file may state the token; otherwise it is the first of these names that the
// vocabulary has.
struct FillEnd {
  std::string_view gguf_key;
  absl::Span<const std::string_view> names;
};
absl::Span<const FillEnd> FillEnds();

// Appends to `ends` the tokens that end a generation by their names, each once. `id_of` returns the
// token with a name, or -1; `is_stated` returns whether `ends` already has the token of a FillEnd.
// Removes names that end only a part of an answer in vocabularies that have another token for the
// end of the answer.
void AddEndsByName(absl::FunctionRef<TokenId(std::string_view)> id_of,
                   absl::FunctionRef<bool(const FillEnd&)> is_stated, std::vector<TokenId>* ends);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_END_NAMES_H_
