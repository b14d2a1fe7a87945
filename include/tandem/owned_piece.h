#ifndef TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
#define TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_

#include <optional>
#include <string>
#include <vector>

#include "tandem/completion.h"
#include "tandem/types.h"

namespace tandem {

// A Piece that owns its text and tokens, so that it can outlive the callback.
struct OwnedPiece {
  std::string text{};
  std::vector<TokenId> token_ids{};
  std::string provenance{};
  std::vector<TokenLogprobs> logprobs{};
  std::vector<ChoiceLogprob> choice_logprobs{};
  std::vector<std::vector<TokenId>> rejected{};
  RoundReport round{};
  std::optional<PromptProgress> prompt_progress{};

  static OwnedPiece Of(const Piece& piece);
  // Appends the next piece.
  void Append(const Piece& next);
  // Whether it has no output, only progress of the prompt.
  bool is_progress() const { return text.empty() && token_ids.empty(); }
  // Valid until this object is changed or destroyed.
  Piece View() const;
  size_t SizeInBytes() const;  // approximate memory use
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_OWNED_PIECE_H_
