#include "tandem/owned_piece.h"

namespace tandem {

OwnedPiece OwnedPiece::Of(const Piece& piece) {
  OwnedPiece owned;
  owned.Append(piece);
  return owned;
}

void OwnedPiece::Append(const Piece& next) {
  text += next.text;
  token_ids.insert(token_ids.end(), next.token_ids.begin(), next.token_ids.end());
  provenance += next.provenance;
  logprobs.insert(logprobs.end(), next.logprobs.begin(), next.logprobs.end());
  const int proposed = round.proposed + next.round.proposed;
  const int accepted = round.accepted + next.round.accepted;
  round = next.round;
  round.proposed = proposed;
  round.accepted = accepted;
}

Piece OwnedPiece::View() const {
  return {.text = text,
          .token_ids = token_ids,
          .provenance = provenance,
          .logprobs = logprobs,
          .round = round};
}

size_t OwnedPiece::SizeInBytes() const {
  size_t size = sizeof(*this) + text.size() + token_ids.size() * (sizeof(TokenId) + 1);
  for (const TokenLogprobs& row : logprobs) {
    size += sizeof(row) + row.top.size() * sizeof(row.top[0]);
  }
  return size;
}

}  // namespace tandem
