#ifndef TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
#define TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_

#include <string>
#include <vector>

#include "tandem/completion.h"
#include "tandem/types.h"

namespace tandem {

// A Piece that owns its text and tokens, to keep after the callback.
struct OwnedPiece {
  std::string text{};
  std::vector<TokenId> token_ids{};
  std::string provenance{};
  std::vector<TokenLogprobs> logprobs{};
  RoundReport round{};

  static OwnedPiece Of(const Piece& piece);
  // Adds the next piece to the end.
  void Append(const Piece& next);
  // Valid as long as this object, unchanged.
  Piece View() const;
  size_t SizeInBytes() const;  // about what it occupies
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
