// The names under which a vocabulary has tokens that end a generation, of whatever kind they are,
// by llama.cpp's rule (its src/llama-vocab.cpp).
#ifndef TANDEM_CHECKPOINT_END_NAMES_H_
#define TANDEM_CHECKPOINT_END_NAMES_H_

#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// A part that one token plays in fill-in-the-middle, and that ends a generation: padding, the next
// repository, the next file. A GGUF file may state the token; else it is the first of these names.
struct FillEnd {
  std::string_view gguf_key;
  absl::Span<const std::string_view> names;
};
absl::Span<const FillEnd> FillEnds();

// Adds the tokens that end a generation by their names to `ends`, each once. `id_of` is the token
// of a name, or -1; `is_stated` whether `ends` has the token of this FillEnd already. Takes out the
// names which end a part of an answer only in vocabularies that have others for the end.
void AddEndsByName(absl::FunctionRef<TokenId(std::string_view)> id_of,
                   absl::FunctionRef<bool(const FillEnd&)> is_stated, std::vector<TokenId>* ends);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_END_NAMES_H_
